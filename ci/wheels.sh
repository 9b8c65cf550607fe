# Sourced by the scripts that run without a network: installs the wheels in $WHEELS, zarrgpu's among them, into $work/site,
# and makes python3 find them. Without WHEELS it does nothing.

if [ -n "${WHEELS:-}" ]; then
    site=$work/site
    python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$site" "$WHEELS"/*.whl
    # numba-cuda takes the place of numba.cuda by a .pth file, and those count in site folders only.
    echo "import site; site.addsitedir('$site')" >"$site/sitecustomize.py"
    export PYTHONPATH=$site
fi
