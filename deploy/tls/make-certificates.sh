#!/bin/bash
# An authority of your own, and certificates that it signs, for a Dask cluster with TLS.
#   make-certificates.sh FOLDER NAME...
# NAME is a host (its name or address; several with commas, the first names the folder) or a person.
# Writes FOLDER/ca.pem, FOLDER/ca-key.pem, and for each name FOLDER/NAME/{ca,cert,key}.pem.
# What is there is kept, so that more names can be added later.
set -euo pipefail
if (($# < 2)); then
  echo "usage: make-certificates.sh FOLDER NAME..." >&2
  exit 2
fi
folder=$1
shift
umask 077
mkdir -p "$folder"
days=${DAYS:-825}

if [[ ! -e $folder/ca-key.pem ]]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=Dask cluster authority" \
    -addext "keyUsage=critical,keyCertSign,cRLSign" \
    -keyout "$folder/ca-key.pem" -out "$folder/ca.pem" 2>/dev/null
fi

for names in "$@"; do
  name=${names%%,*}
  own=$folder/$name
  if [[ -e $own/cert.pem ]]; then
    echo "$own is there already"
    continue
  fi
  mkdir -p "$own"
  alternatives=
  IFS=, read -ra words <<<"$names"
  for word in "${words[@]}"; do
    if [[ $word =~ ^[0-9.]+$ || $word == *:* ]]; then kind=IP; else kind=DNS; fi
    alternatives+=${alternatives:+,}$kind:$word
  done
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$name" \
    -keyout "$own/key.pem" -out "$own/request.pem" 2>/dev/null
  # Workers are servers and clients; strict checks (Python 3.13) want the key identifiers.
  openssl x509 -req -in "$own/request.pem" -CA "$folder/ca.pem" -CAkey "$folder/ca-key.pem" -CAcreateserial \
    -days "$days" -out "$own/cert.pem" -extfile <(
      printf 'basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n'
      printf 'extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=%s\n' "$alternatives"
      printf 'subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n'
    ) 2>/dev/null
  cp "$folder/ca.pem" "$own/ca.pem"
  rm "$own/request.pem"
  echo "$own holds ca.pem, cert.pem and key.pem, for $alternatives"
done
