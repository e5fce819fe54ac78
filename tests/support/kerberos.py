"""A realm of Kerberos with short tickets: Debian's KDC in a folder of its own."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.secured import listens, ports, running

TICKET_S = 60
SERVICE, CLIENT = "kafka/localhost", "penstock"
IS_HERE = all(
    shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    for name in ("krb5kdc", "kdb5_util", "kadmin.local")
)

_REALM = """\
[libdefaults]
 default_realm = TESTS
 dns_lookup_kdc = false
 rdns = false
 udp_preference_limit = 1
[realms]
 TESTS = {{
  kdc = 127.0.0.1:{port}
 }}
"""
_CENTRE = """\
[realms]
 TESTS = {{
  kdc_tcp_ports = {port}
  kdc_ports = {port}
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  acl_file = {folder}/acl
  max_life = {life_s}s
 }}
"""


class Realm:
    """`environ`: what a process needs to find it. `keytab`: of `SERVICE` or `CLIENT`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.environ = {
            "KRB5_CONFIG": str(folder / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "PATH": f"{os.environ['PATH']}:/usr/sbin",
        }

    def keytab(self, principal: str) -> Path:
        return self._folder / f"{principal.partition('/')[0]}.keytab"

    def call(self, *command: str) -> None:
        environ = {**os.environ, **self.environ}
        subprocess.run(command, env=environ, check=True, capture_output=True)


@contextmanager
def realm(folder: Path) -> Iterator[Realm]:
    (port,) = ports("kdc").values()
    (folder / "krb5.conf").write_text(_REALM.format(port=port))
    (folder / "kdc.conf").write_text(_CENTRE.format(port=port, folder=folder, life_s=TICKET_S))
    made = Realm(folder)
    made.call("kdb5_util", "create", "-s", "-r", "TESTS", "-P", "master")
    for principal in (SERVICE, CLIENT):
        made.call("kadmin.local", "-q", f"addprinc -randkey -maxlife {TICKET_S}s {principal}")
        made.call("kadmin.local", "-q", f"ktadd -k {made.keytab(principal)} {principal}")
    environ = {**os.environ, **made.environ}
    with running(
        ["/usr/sbin/krb5kdc", "-n", "-r", "TESTS"], folder, environ, lambda: listens(port)
    ):
        yield made
