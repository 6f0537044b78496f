"""Instructions of PTX as calls of the emulator (ptx_calls.h). An entry of the table below is a pattern of the whole
name of an instruction, and a function that makes its C++ of the operands; None: not emulated after all."""

import re

NAMESPACE = "::pipit::internal::test::emulation::"
SPECIAL_REGISTERS = {"%%cluster_ctarank": "cluster_rank()"}
TYPES = {"b16": "std::uint16_t", "u16": "std::uint16_t", "b32": "std::uint32_t", "u32": "std::uint32_t",
         "s32": "std::int32_t", "b64": "std::uint64_t", "u64": "std::uint64_t", "f32": "float", "pred": "bool"}
INSTRUCTIONS = []


def split(text, separator):
    """Parts of `text` between separators that stand outside of brackets and strings."""
    parts, depth, start, quoted = [], 0, 0, False
    for i, c in enumerate(text):
        if c == '"' and text[i - 1:i] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += (c in "([{") - (c in ")]}")
            if c == separator and depth == 0:
                parts.append(text[start:i])
                start = i + 1
    return [*parts, text[start:]]


def called(function, *arguments):
    return f"{NAMESPACE}{function}({', '.join(map(str, arguments))})"


def boolean(value):
    return "true" if value else "false"


def emulates(pattern):
    def register(function):
        INSTRUCTIONS.append((re.compile(pattern), function))
        return function
    return register


class Statement:
    """One instruction inside of an asm statement, whose operands are C++ expressions."""

    def __init__(self, text, operands, registers):
        self.name, _, rest = text.replace("\n", " ").replace("\t", " ").partition(" ")
        self.modifiers = self.name.split(".")
        self.arguments = [a.strip() for a in split(rest, ",")] if rest.strip() else []
        self.operands, self.registers = operands, registers

    def value(self, which):
        """An argument (or its number) as an expression; the brackets of an address go."""
        text = (self.arguments[which] if isinstance(which, int) else which).strip()
        if text[:1] == "[" and text[-1:] == "]":
            text = text[1:-1].strip()
        if match := re.fullmatch(r"%(\d+)", text):
            return self.operands[int(match[1])]
        if match := re.fullmatch(r"%(\d+)\s*\+\s*(\w+|%\d+)", text):
            return f"({called('wide', self.operands[int(match[1])])} + {self.value(match[2])})"
        if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)[uU]?", text):
            return text
        if text in self.registers:
            return "ptx_" + text
        return NAMESPACE + SPECIAL_REGISTERS[text]

    def values(self, which):
        text = (self.arguments[which] if isinstance(which, int) else which).strip()
        return [self.value(v) for v in split(text[1:-1], ",")] if text.startswith("{") else [self.value(text)]

    def emit(self):
        for pattern, function in INSTRUCTIONS:
            if match := pattern.fullmatch(self.name):
                try:
                    return function(self, match)
                except (KeyError, IndexError):  # an operand of another kind
                    return None
        return None


def array(kind, name, values):
    return f"{kind} {name}[] = {{{', '.join(values)}}};"


def assigned(targets, source):
    return " ".join(called("assign", t, f"{source}[{i}]") + ";" for i, t in enumerate(targets))


# Launches do not overlap here, and what threads store is seen at once: of the fences only those mean something that
# make stores visible to the copy engine and the matrix unit, and the one that lets a relaxed arrival order barriers.
@emulates(r"griddepcontrol\..*|fence\.acq_rel\..*|membar\..*")
def _(_s, _m):
    return "(void)0;"


@emulates(r"fence\.mbarrier_init\.release\.cluster")
def _(_s, _m):
    return called("fence_mbarrier_init") + ";"


@emulates(r"fence\.proxy\.async(\.shared::(cta|cluster))?")
def _(_s, _m):
    return called("fence_proxy_async") + ";"


@emulates(r"mov\.[bu](32|64)")
def _(s, _m):
    return called("assign", s.value(0), s.value(1)) + ";"


@emulates(r"selp\.[bu]32")
def _(s, _m):
    return called("assign", s.value(0), f"{s.value(3)} ? {s.value(1)} : {s.value(2)}") + ";"


@emulates(r"lop3\.b32")
def _(s, _m):
    table, bits = int(s.value(4), 0), [f"std::uint32_t({s.value(i)})" for i in (1, 2, 3)]
    terms = [" & ".join(b if row >> 2 - i & 1 else "~" + b for i, b in enumerate(bits)) for row in range(8) if table >> row & 1]
    return called("assign", s.value(0), " | ".join(f"({t})" for t in terms) or "0U") + ";"


@emulates(r"(ex2|rcp)\.approx(?:\.ftz)?\.f32")
def _(s, m):
    return called("assign", s.value(0), ("std::exp2({})" if m[1] == "ex2" else "1.0F / ({})").format(s.value(1))) + ";"


@emulates(r"cp\.async\.c[ag]\.shared(::cta)?\.global")
def _(s, _m):
    return called("cp_async", s.value(0), called("pointer", s.value(1)), s.value(2), s.value(len(s.arguments) - 1)) + ";"


@emulates(r"cp\.async\.commit_group")
def _(_s, _m):
    return called("cp_async_commit") + ";"


@emulates(r"cp\.async\.wait_group")
def _(s, _m):
    return called("cp_async_wait", s.value(0)) + ";"


@emulates(r"ldmatrix\.sync\.aligned\.m8n8\.x([124])\.shared(::cta)?\.b16")
def _(s, m):
    return f"std::uint32_t ptx_r[{m[1]}]; {called('ldmatrix', m[1], s.value(1), 'ptx_r')}; {assigned(s.values(0), 'ptx_r')}"


@emulates(r"mma\.sync\.aligned\.(m16n8k16|m16n8k32)\.row\.col\.(f32\.f16\.f16\.f32|s32\.s8\.s8\.s32)")
def _(s, m):
    return " ".join([array("const std::uint32_t", "ptx_a", s.values(1)), array("const std::uint32_t", "ptx_b", s.values(2)),
                     array("float" if "f16" in m[2] else "int", "ptx_c", s.values(3)),
                     called("mma", "ptx_c", "ptx_a", "ptx_b") + ";", assigned(s.values(0), "ptx_c")])


@emulates(r"mbarrier\.init\.shared(::cta)?\.b64")
def _(s, _m):
    return called("mbarrier_init", s.value(0), s.value(1)) + ";"


@emulates(r"mbarrier\.arrive\.(?:release\.\w+\.)?(expect_tx\.)?shared(::cta|::cluster)?\.b64")
def _(s, m):
    if s.arguments[0] != "_":
        return None  # the state is not used
    second = s.value(2) if len(s.arguments) > 2 else "1"
    return called("mbarrier_arrive_expect" if m[1] else "mbarrier_arrive", s.value(1), second) + ";"


@emulates(r"mbarrier\.try_wait\.parity\.(acquire\.\w+\.)?shared(::cta)?\.b64")
def _(s, _m):
    return f"{s.value(0)} = {called('mbarrier_wait', s.value(1), s.value(2))};"


@emulates(r"red\.release\.\w+\.(shared|global)(?:::cta)?\.add\.([us]32)")
def _(s, m):
    address = s.value(0) if m[1] == "shared" else called("pointer", s.value(0))
    return called(f"add_{m[1]}<{TYPES[m[2]]}>", address, s.value(1)) + ";"


@emulates(r"ld(?:\.volatile)?((?:\.acquire\.\w+)?)\.(shared|global)(?:::cta)?(?:\.v([24]))?\.([bus](?:16|32|64)|f32)")
def _(s, m):
    kind, count = TYPES[m[4].replace("s", "u")], m[3] or "1"
    address = s.value(1) if m[2] == "shared" else called("pointer", s.value(1))
    load = called(f"load_{m[2]}", address, "ptx_r", "sizeof ptx_r", boolean(m[1]))
    return f"{kind} ptx_r[{count}]; {load}; {assigned(s.values(0), 'ptx_r')}"


@emulates(r"st\.shared(?:::cta)?(?:\.v([24]))?\.([bus](?:16|32|64)|f32)")
def _(s, m):
    kind = TYPES[m[2].replace("s", "u")]
    values = [called(f"as<{kind}>", v) for v in s.values(1)]
    return f"{array(f'const {kind}', 'ptx_r', values)} {called('store_shared', s.value(0), 'ptx_r', 'sizeof ptx_r')};"


# [to], [map, {coordinates}], [barrier](, {offsets of the tap})
@emulates(r"cp\.async\.bulk\.tensor\.([1-5])d\.shared::cluster\.global((?:\.tile|\.im2col)?)\.mbarrier::complete_tx::bytes")
def _(s, m):
    tensor_map, *coordinates = split(s.arguments[1][1:-1], ",")
    offsets = s.values(3) if "im2col" in m[2] and m[1] != "2" else ["0"]
    whole = [[f"static_cast<int>({v})" for v in values] for values in (s.values(",".join(coordinates)), offsets)]
    return " ".join([array("const int", "ptx_at", whole[0]), array("const int", "ptx_offsets", whole[1]),
                     called("copy_tensor", s.value(0), called("pointer", s.value(tensor_map)), s.value(2), "ptx_at", m[1],
                            boolean("im2col" in m[2]), "ptx_offsets") + ";"])


@emulates(r"cp\.async\.bulk\.shared::cluster\.global\.mbarrier::complete_tx::bytes")
def _(s, _m):
    return called("copy_bulk", s.value(0), called("pointer", s.value(1)), s.value(2), s.value(3)) + ";"


@emulates(r"cp\.async\.bulk\.shared::cluster\.global\.mbarrier::complete_tx::bytes\.multicast::cluster")
def _(s, _m):
    return called("copy_bulk_to_all", s.value(0), called("pointer", s.value(1)), *(s.value(i) for i in (2, 3, 4))) + ";"


@emulates(r"wgmma\.(fence|commit_group|wait_group)\.sync\.aligned")
def _(s, m):
    return called("wgmma_" + m[1].partition("_")[0], *([s.value(0)] if s.arguments else [])) + ";"


# {sums}, {left operands} or their descriptor, descriptor, scale-d(, scale-a, scale-b, transpositions)
@emulates(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(?:16|32)\.(f32\.f16\.f16|s32\.s8\.s8)")
def _(s, m):
    kind, sums = "float" if "f16" in m[2] else "int", s.values(0)
    if len(sums) != int(m[1]) // 2 or any(a not in ("0", "1") for a in s.arguments[4:]):
        return None
    if [int(a) for a in s.arguments[4:]] not in ([], [1, 1, 0], [1, 1, 0, 0]):
        return None  # negated or transposed operands
    in_registers = s.arguments[1].startswith("{")
    left = "{" + ", ".join("&" + v for v in s.values(1)) + "}" if in_registers else "{}"
    return " ".join([array(f"{kind}* const", "ptx_d", ["&" + v for v in sums]),
                     f"const std::uint32_t* const ptx_a[4] = {left};",
                     called("wgmma", m[1], "ptx_d", "ptx_a" if in_registers else "nullptr",
                            "0" if in_registers else s.value(1), s.value(2), f"({s.value(3)}) != 0") + ";"])


@emulates(r"setmaxnreg\.(inc|dec)\.sync\.aligned\.u32")
def _(s, m):
    return called("set_registers", s.value(0), boolean(m[1] == "inc")) + ";"


@emulates(r"(?:bar|barrier)(?:\.cta)?\.(sync|arrive)(?:\.aligned)?")
def _(s, m):
    return called("bar_" + m[1], s.value(0), s.value(1) if len(s.arguments) > 1 else "-1") + ";"


@emulates(r"barrier\.cluster\.arrive((?:\.release|\.relaxed)?)(?:\.aligned)?")
def _(_s, m):
    return called("cluster_arrive", boolean(m[1] != ".relaxed")) + ";"


@emulates(r"barrier\.cluster\.wait(?:\.acquire)?(?:\.aligned)?")
def _(_s, _m):
    return called("cluster_wait") + ";"


@emulates(r"mapa\.shared::cluster\.u32")
def _(s, _m):
    return called("assign", s.value(0), called("mapa", s.value(1), s.value(2))) + ";"


@emulates(r"st\.async\.shared::cluster\.mbarrier::complete_tx::bytes(?:\.v[24])?\.[bus]32")
def _(s, _m):
    words = [called("as<std::uint32_t>", v) for v in s.values(1)]
    return f"{array('const std::uint32_t', 'ptx_r', words)} {called('st_async', s.value(0), 'ptx_r', len(words), s.value(2))};"
