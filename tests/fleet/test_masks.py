"""What is secret is masked, and nothing else."""

from typing import Any

import pytest

from deviceplugin_cli.diagnosis._masks import masked, masked_object

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nowIB\n-----END RSA PRIVATE KEY-----"
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("password: hunter2", "password: ***"),
        ("db_password = hunter2, host=a", "db_password = ***, host=a"),
        ('"apiKey": "hunter2", "host": "a"', '"apiKey": "***", "host": "a"'),
        (r'"token": "hun\"ter2", "host": "a"', '"token": "***", "host": "a"'),
        (r"{\"token\": \"hunter2\"}", r"{\"token\": \"***\"}"),
        ("secret: 'hun ter2'\nhost: a", "secret: '***'\nhost: a"),
        ("--token=hunter2 --host=a", "--token=*** --host=a"),
        ("AWS_SECRET_ACCESS_KEY=hunter2", "AWS_SECRET_ACCESS_KEY=***"),
        ("Authorization: Bearer hunter2.abc", "Authorization: Bearer ***"),
        ("authorization: basic aHVudGVyMg==", "authorization: basic ***"),
        ("https://me:hunter2@example.com/a", "https://me:***@example.com/a"),
        (f"got {TOKEN}!", "got ***!"),
        (f"a\n{KEY}\nb", "a\n***\nb"),
        (KEY[:50], "***"),
        ("a:\n  token: |\n    hun\n\n    ter2\n  host: a", "a:\n  token: ***\n  host: a"),
        ("password: >-\n  hunter2", "password: ***\n"),
        ("client-key-data: aHVudGVyMg==", "client-key-data: ***"),
        ("run --db-password hunter2 --host a", "run --db-password *** --host a"),
        *(
            (text, text)
            for text in (
                "DP_HTTP_TOKEN_FILE=/etc/device-plugin-http/token",
                '"secret": {"secretName": "device-plugin-http"}',
                '"automountServiceAccountToken": false',
                'secret "device-plugin-http" not found',
                "https://example.com:443/a@b",
                "10 tokens left",
                "--http-token-file /a --token --verbose",
                "the bearer of news",
                "nvidia.com/gpu: 8",
                "Größe: 3 µm, 键",
            )
        ),
    ],
)
def test_a_text(text: str, expected: str) -> None:
    assert expected == masked(text)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"name": "DB_PASSWORD", "value": "hunter2"}, {"name": "DB_PASSWORD", "value": "***"}),
        ({"name": "HOST", "value": "a"}, {"name": "HOST", "value": "a"}),
        ({"args": ["--token", "hunter2", "a"]}, {"args": ["--token", "***", "a"]}),
        ({"data": {"api-key": "hunter2"}}, {"data": {"api-key": "***"}}),
        ({"data": {"a.yaml": "token: hunter2\n"}}, {"data": {"a.yaml": "token: ***\n"}}),
        ({"token": "", "secret": {"name": "a"}}, {"token": "", "secret": {"name": "a"}}),
        ({"secretName": "a", "limits": {"example.com/token-card": "1"}, "n": [1, None]},) * 2,
        ({"metadata": {"managedFields": [{}], "name": "a"}}, {"metadata": {"name": "a"}}),
        ({"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"}, {"a": "b"}),
    ],
)
def test_an_object(found: Any, expected: Any) -> None:
    assert expected == masked_object(found)
