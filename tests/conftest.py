"""What holds for all tests."""

from patience import be_patient

be_patient()
