# Sourced by the scripts here: goes to the repository's root and gives `python` with the project and its tools installed.
#
# An active virtual environment is used as it is and gets what it lacks; without one, .venv-ci is made from a Python >= 3.12.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

fresh_python() {
    local candidate
    for candidate in python3.12 python3 python "$(uv python find 3.12 2>/dev/null || true)" python3.13; do
        if [ -n "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "no Python >= 3.12 found" >&2
    return 1
}

environment=${VIRTUAL_ENV:-$PWD/.venv-ci}
wanted="$PWD $(cksum <pyproject.toml)"
held=$(cat "$environment/.zarrgpu" 2>/dev/null || true)
if [ "$held" != "$wanted" ]; then
    if [ -z "${VIRTUAL_ENV:-}" ] && [ "${held% * *}" != "$PWD" ]; then
        "$(fresh_python)" -m venv --clear "$environment"
    fi
    "$environment/bin/python" -m pip install -q --upgrade 'pip>=25.1'
    "$environment/bin/python" -m pip install -q --editable '.[cli,bench,docs]' --group test
    echo "$wanted" >"$environment/.zarrgpu"
fi
export VIRTUAL_ENV=$environment PATH="$environment/bin:$PATH"
