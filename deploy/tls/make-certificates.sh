#!/bin/bash
# An authority of your own, and certificates that it signs, for a Dask cluster with TLS.
#   make-certificates.sh FOLDER NAME...
# NAME is a host (its name or address; several with commas, the first names the folder) or a person.
# Writes FOLDER/ca.pem, FOLDER/ca-key.pem, and for each name FOLDER/NAME/{ca,cert,key}.pem.
# Existing files are kept, so that more names can be added later.
set -euo pipefail
if (($# < 2)); then
  echo "usage: make-certificates.sh FOLDER NAME..." >&2
  exit 2
fi
folder=$1
shift
umask 077
days=${DAYS:-825}
for names in "$@"; do
  if [[ ${names%%,*} == */* || ${names%%,*} == .* || -z ${names%%,*} ]]; then
    echo "the name '$names' cannot name a folder; give a host or a person, without / and without a dot before it" >&2
    exit 2
  fi
done
if [[ -e $folder/ca.pem && ! -e $folder/ca-key.pem ]]; then
  echo "$folder/ca.pem is there and ca-key.pem, its key, is not: put ca-key.pem back, or give another folder" >&2
  exit 2
fi
if [[ -e $folder/ca-key.pem && ! -e $folder/ca.pem ]]; then
  echo "$folder/ca-key.pem is there and ca.pem, its certificate, is not: put ca.pem back, or give another folder" >&2
  exit 2
fi
mkdir -p "$folder"
work=$(mktemp -d "$folder/.making.XXXXXX") # half-written files never reach their destination
trap 'rm -rf "$work"' EXIT

# call FOR ARGUMENT...: run openssl with these arguments; if it fails, print its output.
call() {
  local what=$1
  shift
  if ! openssl "$@" 2>"$work/said"; then
    cat "$work/said" >&2
    echo "openssl could not make $what; what it said is above" >&2
    exit 1
  fi
}

if [[ ! -e $folder/ca-key.pem ]]; then
  call "the authority" req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
    -subj "/CN=Dask cluster authority" -addext "keyUsage=critical,keyCertSign,cRLSign" \
    -keyout "$work/ca-key.pem" -out "$work/ca.pem"
  mv "$work/ca-key.pem" "$work/ca.pem" "$folder"
fi

for names in "$@"; do
  name=${names%%,*}
  own=$folder/$name
  if [[ -e $own/cert.pem ]]; then
    echo "$own is there already"
    continue
  fi
  mkdir "$work/own"
  alternatives=
  IFS=, read -ra words <<<"$names"
  for word in "${words[@]}"; do
    if [[ $word =~ ^[0-9.]+$ || $word == *:* ]]; then kind=IP; else kind=DNS; fi
    alternatives+=${alternatives:+,}$kind:$word
  done
  call "the key of '$name'" req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$name" \
    -keyout "$work/own/key.pem" -out "$work/request.pem"
  # Workers are servers and clients; strict checks (Python 3.13) want the key identifiers.
  {
    printf 'basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n'
    printf 'extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=%s\n' "$alternatives"
    printf 'subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n'
  } >"$work/extensions"
  call "the certificate of '$names'" x509 -req -in "$work/request.pem" -CA "$folder/ca.pem" \
    -CAkey "$folder/ca-key.pem" -CAcreateserial -days "$days" -out "$work/own/cert.pem" -extfile "$work/extensions"
  cp "$folder/ca.pem" "$work/own/ca.pem"
  mkdir -p "$own"
  mv "$work/own/"*.pem "$own"
  rmdir "$work/own"
  echo "$own holds ca.pem, cert.pem and key.pem, for $alternatives"
done
