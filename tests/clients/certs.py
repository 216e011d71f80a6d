"""A CA for one test, and what it vouches for, as PEM files."""

import datetime
import ipaddress
import os

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


class Certs:
    def __init__(self, folder):
        self.folder = folder
        self.key, name = ec.generate_private_key(ec.SECP256R1()), self.name("Test CA")
        self.own = self.build(name, name, self.key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(
                self.key, hashes.SHA256())
        self.ca = self.write("ca.pem", self.own.public_bytes(serialization.Encoding.PEM))

    @staticmethod
    def name(common):
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])

    @staticmethod
    def build(subject, issuer, key):
        now = datetime.datetime.now(datetime.timezone.utc)
        return x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(
            key).serial_number(x509.random_serial_number()).not_valid_before(
                now - DAY).not_valid_after(now + DAY)

    def path(self, file):
        return os.path.join(self.folder, file)

    def write(self, file, data):
        with open(self.path(file), "wb") as out:
            out.write(data)
        return self.path(file)

    def issue(self, file, common, server=False, client=False):
        """The paths of a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.SERVER_AUTH] if server else []
        uses += [] if server and not client else [ExtendedKeyUsageOID.CLIENT_AUTH]
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        made = self.build(self.name(common), self.own.subject, key.public_key()).add_extension(
            x509.ExtendedKeyUsage(uses), critical=False)
        if server:
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        made = made.sign(self.key, hashes.SHA256())
        pem, private = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        return (self.write(f"{file}.pem", made.public_bytes(pem)),
                self.write(f"{file}.key", key.private_bytes(
                    pem, private, serialization.NoEncryption())))
