"""An OpenID Connect server with one client, and its keys: as the brokers' token endpoint, for tests
and for `scripts/chaos --oauth`.
"""

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from realstack.kafka import AUDIENCE, ISSUER

CLIENT, SECRET = "penstock-tests", "a-client-secret-nobody-may-see"
LIFE_S = 10


class Signer:
    """Signs tokens that a broker with these `keys` takes."""

    def __init__(self, folder: Path) -> None:
        self._number = 0
        self.keys = folder / "keys.json"
        self.rotate()
        self.private = folder / "private.pem"
        self.private.write_bytes(
            self._key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        self.public_key = self._key.public_key()

    def rotate(self) -> None:
        """From now on tokens are signed by another key, and only this one is among `keys`."""
        self._key = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
        self._number += 1
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        named = {**public, "kid": str(self._number), "use": "sig"}
        self.keys.write_text(json.dumps({"keys": [named]}))

    def token(self, life_s: float = LIFE_S, **changes: object) -> str:
        now_s = int(time.time())
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "penstock", "scope": "x"}
        times = {"iat": now_s, "exp": now_s + int(life_s)}
        token: str = jwt.encode(
            {**claims, **times, **changes},
            self._key,
            algorithm="RS256",
            headers={"kid": str(self._number)},
        )
        return token


class TokenServer:
    """`ahead_s`: of its clock. `tells_life`: whether it says `expires_in`. `mood`: "well", "away"
    (connections break), "ill" (it answers 500), "forges" (its tokens have a wrong signature),
    "knows nobody", "in pieces", or "bare" (no JSON).
    """

    def __init__(self, signer: Signer) -> None:
        self.signer = signer
        self.life_s: float = LIFE_S
        self.mood: str = "well"
        self.answers_after_s = 0.0
        self.ahead_s, self.tells_life = 0, True
        self.asked = 0
        self.forms: list[dict[str, Any]] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        form = {key: str(value) for key, value in (await request.post()).items()}
        self.forms.append(form)
        await asyncio.sleep(self.answers_after_s)
        if self.mood == "away":
            assert request.transport is not None
            request.transport.abort()
        if self.mood == "ill":
            return web.Response(status=500, text="out of order")
        if self.mood == "knows nobody" or not self._knows(request, form):
            return web.json_response(
                {"error": "invalid_client", "error_description": "no such client"}, status=401
            )
        now_s = int(time.time()) + self.ahead_s
        token = self.signer.token(iat=now_s, exp=now_s + int(self.life_s))
        if self.mood == "forges":
            token = token.rpartition(".")[0] + "." + "A" * 342
        if self.mood == "bare":
            return web.Response(text=token)
        document: dict[str, object] = {"access_token": token}
        if self.tells_life:
            document["expires_in"] = self.life_s
        if self.mood == "in pieces":
            answer = web.StreamResponse()
            await answer.prepare(request)
            text = json.dumps(document).encode()
            for piece in (text[:100], text[100:]):
                await answer.write(piece)
                await asyncio.sleep(0.05)  # so that they are not one segment
            return answer
        headers = {"Date": formatdate(now_s, usegmt=True)}
        return web.json_response(document, headers=headers)

    def _knows(self, request: web.Request, form: dict[str, str]) -> bool:
        if "client_assertion" in form:
            try:
                jwt.decode(
                    form["client_assertion"],
                    self.signer.public_key,
                    algorithms=["RS256"],
                    audience=self.url,
                    issuer=CLIENT,
                )
            except jwt.InvalidTokenError:
                return False
            return True
        given = request.headers.get("Authorization", "")
        return given == f"Basic {b64encode(f'{CLIENT}:{SECRET}'.encode()).decode()}"


@asynccontextmanager
async def token_server(signer: Signer) -> AsyncIterator[TokenServer]:
    server = TokenServer(signer)
    app = web.Application()
    app.router.add_post("/token", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    server.url = f"http://127.0.0.1:{port}/token"
    try:
        yield server
    finally:
        await runner.cleanup()
