# shellcheck shell=bash disable=SC2154 # the variables are those of scripts/services
# Installs missing servers, for scripts/services.

install_what_is_missing() {
    local service missing=() variables=() packages=()
    for service in ${wanted[@]+"${wanted[@]}"}; do
        "${service}_is_installed" && continue
        missing+=("$service")
        variables+=("$("${service}_variable")")
    done
    [[ ${#missing[@]} -gt 0 ]] || return 0
    if [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null; then
        mapfile -t packages < <(packages_of "${missing[@]}")
        say "not installed: ${missing[*]}. Either install what is missing, on Debian and Ubuntu with"
        say "    sudo apt-get install -y --no-install-recommends ${packages[*]}"
        say "or name your own server, with a user that may create and drop databases, in: ${variables[*]}"
        exit 1
    fi
    say "installing ${missing[*]}; the output goes to target/services/install.log"
    if ! install_packages "${missing[@]}" </dev/null >"$state/install.log" 2>&1 8>&- 9>&-; then
        stop_if_interrupted
        tail -n 20 "$state/install.log" >&2
        die "could not install ${missing[*]}; to use your own server, name it in: ${variables[*]}"
    fi
    for service in "${missing[@]}"; do
        "${service}_is_installed" || die "$service is still missing after its installation; see target/services/install.log"
    done
}

# Debian's packages start their own server by default; this prevents it during the installation. The
# body is a subshell: its trap undoes that however it ends.
install_packages() (
    policy=/usr/sbin/policy-rc.d
    clusters=/etc/postgresql-common/createcluster.conf
    install=(apt-get install -y --no-install-recommends --no-remove -o DPkg::Lock::Timeout=300)
    export DEBIAN_FRONTEND=noninteractive
    trap 'undo_debian_settings "$policy" "$clusters"' EXIT

    apt-get update || true # a broken third-party source need not matter; the installation will tell
    if [[ ! -e $policy ]]; then
        printf '#!/bin/sh\n# Here only while scripts/services installs packages.\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    if [[ " $* " == *' postgres '* ]]; then
        "${install[@]}" postgresql-common || exit 1
        [[ -e $clusters.longhaul ]] || cp -p "$clusters" "$clusters.longhaul"
        echo 'create_main_cluster = false' >>"$clusters"
    fi
    mapfile -t packages < <(packages_of "$@")
    "${install[@]}" "${packages[@]}"
)

undo_debian_settings() {
    local policy=$1 clusters=$2
    ! grep -qs 'scripts/services' "$policy" || rm -f "$policy"
    [[ ! -e $clusters.longhaul ]] || mv -f "$clusters.longhaul" "$clusters"
}

# Prints one package per line.
packages_of() {
    local service
    for service in "$@"; do
        "${service}_packages" | tr ' ' '\n'
    done
}

apt_knows() {
    apt-cache show "$1" >/dev/null 2>&1
}

# Installs a tool that the tests use: Debian's package, and a command that succeeds if the tool exists.
get_tool() {
    local package=$1
    shift
    ! "$@" >/dev/null 2>&1 || return 0
    if [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null; then
        die "the tests need the package $package of Debian and Ubuntu: sudo apt-get install -y $package"
    fi
    say "installing $package; the output goes to target/services/install.log"
    if ! (
        export DEBIAN_FRONTEND=noninteractive
        apt-get update || true # a broken third-party source need not matter; the installation will tell
        apt-get install -y --no-install-recommends --no-remove -o DPkg::Lock::Timeout=300 "$package"
    ) </dev/null >>"$state/install.log" 2>&1 8>&- 9>&-; then
        stop_if_interrupted
        tail -n 5 "$state/install.log" >&2
        die "could not install $package"
    fi
}
