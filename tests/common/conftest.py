from hypothesis import settings

# A machine under load must not fail a test for being slow.
settings.register_profile("common", deadline=None, max_examples=50)
settings.load_profile("common")
