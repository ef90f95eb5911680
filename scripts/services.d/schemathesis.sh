# shellcheck shell=bash disable=SC2154 # the variables are those of scripts/services
# Schemathesis, which makes requests from the OpenAPI document in the tests. It is a Python program: if it is missing, it is installed
# in its own virtual environment, with the versions that schemathesis.txt pins.

# Puts its path into LONGHAUL_TEST_SCHEMATHESIS, unless the caller has.
find_schemathesis() {
    local list=$here/services.d/schemathesis.txt folder
    folder=$root/target/tools/schemathesis-$(sha256sum "$list" | cut -c1-8)
    : "${LONGHAUL_TEST_SCHEMATHESIS:=$folder/bin/schemathesis}"
    export LONGHAUL_TEST_SCHEMATHESIS
    [[ $LONGHAUL_TEST_SCHEMATHESIS != "$folder"/* || -e $folder/complete ]] || make_schemathesis "$folder" "$list"
    [[ -x $LONGHAUL_TEST_SCHEMATHESIS ]] || die "LONGHAUL_TEST_SCHEMATHESIS names no program: $LONGHAUL_TEST_SCHEMATHESIS"
}

make_schemathesis() {
    local folder=$1 list=$2
    say "fetching Schemathesis; the output goes to target/services/install.log"
    # Debian's python3 cannot make virtual environments without another package.
    get_tool python3-venv python3 -c 'import venv, ensurepip'
    rm -rf "$root"/target/tools/schemathesis-*
    mkdir -p "$(dirname "$folder")"
    if ! (
        python3 -m venv "$folder" &&
            "$folder/bin/pip" install --disable-pip-version-check --no-input --requirement "$list" &&
            touch "$folder/complete"
    ) </dev/null >>"$state/install.log" 2>&1 8>&- 9>&-; then
        stop_if_interrupted
        tail -n 5 "$state/install.log" >&2
        die "could not fetch Schemathesis from PyPI; install $(grep '^schemathesis==' "$list") yourself and name the program in LONGHAUL_TEST_SCHEMATHESIS"
    fi
}
