#!/usr/bin/env python3
"""Makes a header of CUDA C++ one that a C++ compiler takes for a CPU, with calls of the emulator in it.

    translate.py SOURCE TARGET

Inline PTX becomes calls (ptx.py), variables in shared memory become references into the block's own. Lines keep their
numbers, and #line says whose they are, so that errors name the source. What ptx.py does not know fails when it is
executed, with its text: a kernel need not run all that its headers hold.
"""

import os
import re
import sys

from ptx import NAMESPACE, TYPES, Statement, split

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|\basm(?:\s+volatile)?\s*(?=\()', re.S)
BLANK = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.S)
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:\(([^)]*)\))?((?:[^\n\\]|\\\n|\\[^\n])*)", re.M)
SHARED = re.compile(r"(extern\s+)?\b__shared__\s+((?:__align__|alignas)\(([^)]*)\)\s+)?([^;\[\]=(]+?)\s*\b(\w+)\s*"
                    r"((?:\[[^\]]*\])*)\s*;")


def closing(text, i):
    """Behind the bracket that closes the one at i. Literals hold no brackets but in strings."""
    depth = 0
    while True:
        if text[i] == '"' or text.startswith("//", i):
            i = TOKEN.match(text, i).end()
            continue
        depth += (text[i] in "([{") - (text[i] in ")]}")
        i += 1
        if depth == 0:
            return i


def asm_macros(text):
    """Macros that may stand for operands or text of asm: name -> (parameters, body)."""
    return {m[1]: ([p.strip() for p in (m[2] or "").split(",")], m[3].replace("\\\n", " "))
            for m in MACRO.finditer(text)}


def mention(name, macros):
    """One with parameters is only expanded where they follow; else it is an argument itself."""
    return rf"\b({name})\b" + (r"(?=\s*\()" if macros[name][0] != [""] else "")


def expanded(text, macros):
    while match := next(filter(None, (re.search(mention(name, macros), text) for name in macros)), None):
        parameters, body = macros[match[1]]
        end = match.end()
        if parameters != [""]:
            start = text.index("(", end) + 1
            end = closing(text, start - 1)
            values = dict(zip(parameters, (a.strip() for a in split(text[start:end - 1], ","))))
            body = re.sub(r"\b(" + "|".join(parameters) + r")\b", lambda m: values[m[1]], body)
        text = text[:match.start()] + body + text[end:]
    return text


def statement(inside, macros, where):
    """The text in the brackets after asm, as a C++ statement."""
    template, *sections = [s.strip() for s in split(expanded(inside, macros), ":")]
    operands = []
    for section in sections[:2]:
        for item in filter(str.strip, split(section, ",")):
            match = re.fullmatch(r'\s*"[^"]*"\s*(\(.*\))\s*', item, re.S)
            if not match:
                raise SystemExit(f"{where}: the operand {item.strip()} of asm is in no known form")
            operands.append(match[1])
    text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', template)).replace("\\n", "\n").replace("\\t", "\t")
    registers, code = set(), []
    for line in text.split(";"):
        line = line.strip().lstrip("{} \n\t").strip()  # scopes of registers do not matter
        if not line:
            continue
        if match := re.fullmatch(r"\.reg\s+\.(\w+)\s+(.*)", line, re.S):
            for register in map(str.strip, match[2].split(",")):
                registers.add(register)
                code.append(f"{TYPES[match[1]]} ptx_{register}{{}};")
            continue
        emitted = Statement(line, operands, registers).emit()
        code.append(f"{{ {emitted} }}" if emitted else f'{NAMESPACE}unknown_ptx("{" ".join(line.split())}");')
    return "do { " + " ".join(code) + " } while (false)"


def without_asm(text, where):
    macros, out, i = asm_macros(text), [], 0
    while match := TOKEN.search(text, i):
        out.append(text[i:match.start()])
        i = match.end()
        if not match[0].startswith("asm"):
            out.append(match[0])
            continue
        end = closing(text, i)
        line = text.count("\n", 0, match.start()) + 1
        out.append(statement(text[i + 1:end - 1], macros, f"{where}:{line}"))
        semicolon = BLANK.match(text, end).end()
        if text[semicolon] != ";":
            raise SystemExit(f"{where}:{line}: no semicolon after asm")
        i = semicolon + 1
        out.append(";" + "\n" * text.count("\n", match.start(), i))
    return "".join([*out, text[i:]])


def shared_variable(match):
    outside, alignment, kind, name, extents = match[1], match[3], match[4].strip(), match[5], match[6]
    if outside:
        return f"{kind}* const {name} = static_cast<{kind}*>({NAMESPACE}dynamic_shared({alignment or 16}));"
    # Every instance of a template has variables of its own: the address of a local static tells them apart.
    key = "[]() -> const void* { static const char key = 0; return &key; }()"
    of_type = f"{NAMESPACE}Same<{kind}{extents}>"
    return (f"{of_type}& {name} = *static_cast<{of_type}*>({NAMESPACE}static_shared("
            f'{key}, sizeof({kind}{extents}), {alignment or f"alignof({kind})"}, "{name}"));')


def main(source, target):
    with open(source, encoding="utf-8") as file:
        text = file.read()
    text = SHARED.sub(shared_variable, without_asm(text, source))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "w", encoding="utf-8") as file:
        # Warnings are for the source, which nvcc compiles.
        file.write(f'#pragma GCC system_header\n#line 1 "{os.path.abspath(source)}"\n{text}')


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n\n")[1].strip())
    main(*sys.argv[1:])
