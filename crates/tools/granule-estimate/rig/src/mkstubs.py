"""Write C stubs for the symbols that the hand-written objects lack.

usage: mkstubs.py OUT.c DEFINED_BY_US.txt WANTED.txt ANSWER
Both lists hold one symbol a line.  ANSWER is what a stub returns: 0, or the number of "not supported", which the
stub then also says on stderr, once.  Every stub has the same body: the x86-64 calling convention lets a function
ignore the arguments it was passed.
"""
import re
import sys

out, have, want, answer = sys.argv[1:5]
have = set(open(have).read().split())
names = sorted({w for w in open(want).read().split() if re.fullmatch(r"[A-Za-z_]\w*", w)} - have)
with open(out, "w") as f:
    f.write('#include <stdio.h>\n#include <stdlib.h>\n'
            "#define QUIET(n) long n(void) { return 0; }\n"
            '#define REFUSE(n) long n(void) { static int said; if (!said++) '
            'fprintf(stderr, "fakegpu: %s is not faked\\n", #n); return ' + answer + "; }\n"
            "#define NEW(n) long n(void **p) { *p = calloc(1, 256); return 0; }\n")
    # cudnnCreate* make a handle through their first argument
    f.writelines(f"{'NEW' if n.startswith('cudnnCreate') else 'QUIET' if answer == '0' else 'REFUSE'}({n})\n" for n in names)
print(f"{out}: {len(names)} stubs beside {len(have)} written by hand", file=sys.stderr)
