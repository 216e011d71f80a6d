# Makes certificates and keys in the forms that people have, into the current folder.
# openssl 3.0 or newer.
set -eu
rsa() { openssl genrsa -out "$1.key" 2048; }
ec() { openssl ecparam -name "${2:-prime256v1}" -genkey -noout -out "$1.key"; }
request() { openssl req -new -key "$1.key" -out "$1.csr" -subj "$2"; }
# sign NAME CA EXTENSIONS [MORE]: an empty EXTENSIONS makes version 1.
sign() {
  name=$1 ca=$2 extensions=$3; shift 3
  if [ -n "$extensions" ]; then
    printf '%b\n' "$extensions" > "$name.ext"
    set -- "$@" -extfile "$name.ext"
  fi
  openssl x509 -req -in "$name.csr" -CA "$ca.pem" -CAkey "$ca.key" -CAcreateserial \
    -days 30 -out "$name.pem" "$@"
}
one() { ec "$1"; request "$1" "$2"; sign "$1" "$3" "$4"; }
SAN='subjectAltName=DNS:localhost,IP:127.0.0.1'
LEAF='basicConstraints=CA:FALSE'

rsa ca; openssl req -x509 -new -key ca.key -days 30 -subj '/CN=A CA' -out ca.pem
# A root of version 1, self-issued.
rsa old-ca; request old-ca '/CN=An old CA'
openssl x509 -req -in old-ca.csr -signkey old-ca.key -days 30 -out old-ca.pem
ec mid; request mid '/CN=A CA between'; sign mid ca 'basicConstraints=critical,CA:TRUE'

# A root whose time is over, and what it has signed.
ec past-ca; request past-ca '/CN=A CA of the past'
printf 'basicConstraints=critical,CA:TRUE\n' > past-ca.ext
openssl x509 -req -in past-ca.csr -signkey past-ca.key -days -1 -extfile past-ca.ext -out past-ca.pem
ec past-mid; request past-mid '/CN=A CA between of the past'
sign past-mid past-ca 'basicConstraints=critical,CA:TRUE'
cat past-ca.pem past-mid.pem > past-both.pem

ec bounded; request bounded '/CN=A CA for partners'
sign bounded ca 'basicConstraints=critical,CA:TRUE\nnameConstraints=critical,permitted;DNS:partner.example'

# Of servers.
one v3 /CN=localhost ca "$SAN"
rsa v1; request v1 /CN=localhost; sign v1 ca ''
one v1-of-old-ca /CN=localhost old-ca ''
one v3-of-old-ca /CN=localhost old-ca "$SAN"
one no-names /CN=localhost ca "$LEAF"
one no-names-other /CN=elsewhere.example ca "$LEAF"
one no-names-address /CN=127.0.0.1 ca "$LEAF"
one other-names /CN=localhost ca 'subjectAltName=DNS:elsewhere.example'
ec self-ca; openssl req -x509 -new -key self-ca.key -days 30 -subj /CN=localhost -addext "$SAN" -out self-ca.pem
ec self-leaf; openssl req -x509 -new -key self-leaf.key -days 30 -subj /CN=localhost -addext "$SAN" \
  -addext "basicConstraints=critical,CA:FALSE" -out self-leaf.pem
one below /CN=localhost mid "$SAN"
one bounded-leaf /CN=localhost bounded "$LEAF"
cat bounded-leaf.pem bounded.pem > bounded-whole.pem
cat below.pem mid.pem ca.pem > below-whole.pem
cat mid.pem below.pem > below-reversed.pem
cat mid.pem ca.pem > mid-and-ca.pem
openssl x509 -in v3.pem -outform DER -out v3.der
openssl pkey -in v3.key -outform DER -out v3-key.der
openssl pkcs12 -export -in v3.pem -inkey v3.key -passout pass: -out v3.p12
openssl x509 -in v3.pem -addtrust clientAuth -out v3-trusted.pem
openssl crl2pkcs7 -nocrl -certfile v3.pem -out v3.p7b
openssl pkey -in v3.key -aes128 -passout pass:secret -out v3-locked.key
openssl rsa -in v1.key -aes128 -passout pass:secret -traditional -out v1-locked.key
(printf '\357\273\277'; openssl x509 -in v3.pem -text | sed 's/$/\r/') > v3-windows.pem
(openssl x509 -in v3.pem; cat v3.key) > v3-both.pem
openssl ecparam -name prime256v1 -genkey -out v3-parameters.key
request v3-parameters /CN=localhost; sign v3-parameters ca "$SAN"
openssl genpkey -algorithm ed25519 -out ed25519.key; request ed25519 /CN=localhost; sign ed25519 ca "$SAN"
openssl genrsa -out short.key 1024; request short /CN=localhost; sign short ca "$SAN"
ec p521 secp521r1; request p521 /CN=localhost; sign p521 ca "$SAN"
rsa sha1; request sha1 /CN=localhost; sign sha1 ca "$SAN" -sha1
ec past; request past /CN=localhost; openssl x509 -req -in past.csr -CA ca.pem -CAkey ca.key -CAcreateserial \
  -days -1 -extfile v3.ext -out past.pem
iconv -f ASCII -t UTF-16 v3.pem > v3-utf16.pem

# Of clients.
one client-v3 /CN=ann ca "$LEAF"
one client-v1 /CN=ann ca ''
one client-v1-below /CN=ann mid ''
one client-below /CN=ann mid "$LEAF"
cat client-below.pem mid.pem > client-below-whole.pem
one client-server-use /CN=ann ca 'extendedKeyUsage=serverAuth'
one client-is-ca /CN=ann ca 'basicConstraints=critical,CA:TRUE'
one client-of-past-ca /CN=ann past-ca "$LEAF"
one client-of-past-mid /CN=ann past-mid "$LEAF"
cat ca.pem past-ca.pem > ca-and-past-ca.pem
ec client-past; request client-past /CN=ann; openssl x509 -req -in client-past.csr -CA ca.pem -CAkey ca.key \
  -CAcreateserial -days -1 -extfile client-v3.ext -out client-past.pem
ec client-self; openssl req -x509 -new -key client-self.key -days 30 -subj /CN=ann -out client-self.pem
ec client-self-leaf; openssl req -x509 -new -key client-self-leaf.key -days 30 -subj /CN=ann \
  -addext "basicConstraints=critical,CA:FALSE" -out client-self-leaf.pem
# Somebody with a certificate that is no CA's makes one for another name.
one client-minted /CN=root client-self-leaf "$LEAF"
cat client-minted.pem client-self-leaf.pem > client-minted-whole.pem
ec client-p521 secp521r1; request client-p521 /CN=ann; sign client-p521 ca "$LEAF"
rsa client-sha1; request client-sha1 /CN=ann; sign client-sha1 ca "$LEAF" -sha1
openssl genpkey -algorithm ed25519 -out client-ed25519.key; request client-ed25519 /CN=ann; sign client-ed25519 ca "$LEAF"
touch index.txt; echo 01 > crlnumber
printf '[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\ncrlnumber=crlnumber\ndefault_md=sha256\ndefault_crl_days=30\n' > ca.cnf
openssl ca -config ca.cnf -gencrl -keyfile ca.key -cert ca.pem -out crl.pem
openssl crl -in crl.pem -outform DER -out crl.der

# CAs with limits, and clients whose certificates are for something else.
CA='basicConstraints=critical,CA:TRUE'
root() {
  ec "$1"; request "$1" "$2"; printf '%b\n' "$3" > "$1.ext"
  openssl x509 -req -in "$1.csr" -signkey "$1.key" -days 30 -extfile "$1.ext" -out "$1.pem"
}
root server-ca '/CN=A CA for servers' "$CA\nextendedKeyUsage=serverAuth"
one client-of-server-ca /CN=ann server-ca "$LEAF"
root client-ca '/CN=A CA for clients' "$CA\nextendedKeyUsage=clientAuth"
one client-of-client-ca /CN=ann client-ca "$LEAF"
root flat-ca '/CN=A CA with nothing between' "$CA,pathlen:0"
one client-of-flat-ca /CN=ann flat-ca "$LEAF"
one flat-mid '/CN=A CA between that is one too many' flat-ca "$CA"
one client-of-flat-mid /CN=ann flat-mid "$LEAF"
cat client-of-flat-mid.pem flat-mid.pem > client-of-flat-mid-whole.pem
cat flat-mid.pem flat-ca.pem > flat-both.pem
one client-v1-of-flat-mid /CN=ann flat-mid ''
one client-v1-of-past-mid /CN=ann past-mid ''
root named-ca '/CN=A CA for names' "$CA\nnameConstraints=critical,permitted;DNS:partner.example,permitted;email:partner.example"
one client-named-host /CN=ann.other.example named-ca "$LEAF"
one client-named-mail /CN=ann/emailAddress=ann@other.example named-ca "$LEAF"
one client-named /CN=ann named-ca "$LEAF"
one client-enciphers /CN=ann ca "$LEAF\nkeyUsage=critical,keyEncipherment"
one client-agrees /CN=ann ca "$LEAF\nkeyUsage=critical,digitalSignature,keyAgreement"
one client-netscape-server /CN=ann ca "$LEAF\nnsCertType=server"
one client-revoked /CN=ann ca "$LEAF"
openssl ca -config ca.cnf -gencrl -keyfile ca.key -cert ca.pem -crl_lastupdate 20250101000000Z -crldays 3650 -out crl-before.pem
openssl ca -config ca.cnf -revoke client-revoked.pem -keyfile ca.key -cert ca.pem
openssl ca -config ca.cnf -gencrl -keyfile ca.key -cert ca.pem -out crl-after.pem
cat crl-before.pem crl-after.pem > crl-two.pem
# A CA between whose key usage is not that of a CA, and what it has signed.
one idle-mid '/CN=A CA between that may not sign' ca "$CA\nkeyUsage=critical,digitalSignature"
one client-of-idle-mid /CN=ann idle-mid "$LEAF"
cat client-of-idle-mid.pem idle-mid.pem > client-of-idle-mid-whole.pem
one flat-sent '/CN=A CA between with nothing below' ca "$CA,pathlen:0"
one flat-sent-mid '/CN=A CA below that' flat-sent "$CA"
one client-of-flat-sent /CN=ann flat-sent-mid "$LEAF"
cat client-of-flat-sent.pem flat-sent-mid.pem flat-sent.pem > client-of-flat-sent-whole.pem
