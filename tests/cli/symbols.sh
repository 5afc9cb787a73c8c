#!/bin/sh
# Source lines of compiled code: from the program's own DWARF, through inlining, and only from the build that ran.
. "$(dirname "$0")/common.sh"
GRAVEL_LIBDIR=$build/tests/cli/lib
export GRAVEL_LIBDIR
target=$build/tests/cli/symbol_target
source=$here/symbol_target.c
line=$(grep -n 'line of the inlined call' "$source" | cut -d: -f1)
cd "$scratch" || exit 1

"$gravel" run -o t.gravel -- "$target" > /dev/null 2>&1
expect "the line of the inlined call" 1 "launched at cli/symbol_target.c:$line in inlined_step" "$gravel" check t.gravel
expect "the whole stack" 1 "symbol_target.c:[0-9]* in main" "$gravel" check --verbose t.gravel

# Without DWARF the symbol table gives functions. The stack's innermost frame is then decode, into which the inlined
# function went.
cp "$target" no-lines && strip --strip-debug no-lines
"$gravel" run -o n.gravel -- ./no-lines > /dev/null 2>&1
expect "functions without lines" 1 "launched at decode in [^ ]*no-lines (+0x[0-9a-f]*)" "$gravel" check n.gravel

# With the DWARF in a file of its own, beside the program.
cp "$target" split && objcopy --only-keep-debug split split.debug && strip split &&
    objcopy --add-gnu-debuglink=split.debug split
"$gravel" run -o s.gravel -- ./split > /dev/null 2>&1
expect "lines from a separate debug file" 1 "launched at cli/symbol_target.c:$line in inlined_step" "$gravel" check s.gravel

# Another build at the same path, and a program that is gone: no lines rather than wrong ones.
expect "another build" 0 "1 binary was changed since" "$gravel" run -v -o w.gravel -- "$target" wrong-build
expect "no lines from another build" 1 "launched at cli/symbol_target (+0x" "$gravel" check w.gravel
cp "$target" gone
expect "a program that deletes itself" 0 "1 is gone" "$gravel" run -v -o g.gravel -- ./gone delete
expect "no lines of a program that is gone" 1 "launched at [^ ]*gone (+0x" "$gravel" check g.gravel

# A trace whose end is torn: the torn bytes go, the lines come, and the report tells.
expect "a torn trace" 0 "" "$gravel" run -o torn.gravel -- "$target" tear
expect "a torn trace is told" 1 "the end of this trace was torn.*NOT complete" "$gravel" check torn.gravel
expect "a torn trace has lines" 1 "symbol_target.c:$line" "$gravel" check torn.gravel
finish
