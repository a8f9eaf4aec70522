"""Random small functions, as source text, that mix tensors with most of what Python has.

``Program(choose).source`` draws every decision from ``choose``, a ``random.Random`` or what hypothesis offers in its
place, so that hypothesis can shrink a failing program. Names are typed loosely while the text is made: most programs
run to their end, and some raise.
"""

import contextlib
import linecache

from .random_forms import EXPRESSIONS, FILLS, KINDS, LEAVES
from .random_statements import AUGMENTED, CAUGHT, CHANGES, ERRORS, FAILURES, LOOPS, MATCHES, UNPACKS, WITHS, WORDS

PARAMETERS = {
    "x": "tensor", "y": "tensor", "n": "int", "flag": "bool", "items": "ints", "table": "table", "thing": "thing",
    "layer": "layer",
}  # fmt: skip
INDENT = "    "


class Scope:
    """The names of one function: name -> type."""

    def __init__(self, names, outer=None, kind="function"):
        self.names = dict(names)
        self.outer = outer
        self.kind = kind
        self.declared = set()
        self.fixed = set()  # names that must not be assigned to, as a loop or a closure depends on them


class Program:
    """One random function ``f(x, y, n, flag, items, table, thing, layer)``."""

    def __init__(self, choose, statements=8, breaks=0.1):
        self.choose = choose
        self.breaks = breaks
        self.count = 0
        self.budget = 3 * statements
        self.lines = []
        self.scope = Scope(PARAMETERS)
        self.indent = 1
        self.loops = 0
        self.finals = 0
        self.lines.append(f"def f({', '.join(PARAMETERS)}):")
        self.declare_globals()
        for _ in range(choose.randint(2, statements)):
            self.statement()
        returned = [name for name, kind in self.scope.names.items() if kind not in ("generator", "to_int", "to_tensor")]
        self.write(f"return {', '.join(returned)}")
        self.source = "\n".join(self.lines) + "\n"

    # --- text ------------------------------------------------------------------------------------------------------

    def write(self, line):
        self.lines.append(INDENT * self.indent + line)

    def fresh(self, prefix="v"):
        self.count += 1
        return f"{prefix}{self.count}"

    def chance(self, probability):
        return self.choose.random() < probability

    def declare_globals(self):
        self.write("global COUNTER")

    def visible(self, kind):
        """Names of a type that can be read here, outer functions' included."""
        found, scope = [], self.scope
        while scope is not None:
            found += [name for name, each in scope.names.items() if each == kind and name not in found]
            scope = scope.outer
        return found

    @contextlib.contextmanager
    def block(self, bound=False):
        """An indented block; what it defines stays known with its end only if it is sure to have run."""
        before = dict(self.scope.names)
        self.indent += 1
        yield
        self.indent -= 1
        if not bound:
            # Now and then a name that may not be bound stays in use.
            kept = {k: v for k, v in self.scope.names.items() if k in before or self.chance(0.05)}
            self.scope.names = kept

    def body(self, most=3, bound=False):
        with self.block(bound):
            for _ in range(self.choose.randint(1, most)):
                self.statement()

    # --- expressions -----------------------------------------------------------------------------------------------

    def expression(self, kind, depth=2):
        names = self.visible(kind)
        if names and (depth <= 0 or self.chance(0.35)):
            return self.choose.choice(names)
        forms = EXPRESSIONS[kind]
        text = self.choose.choice(forms if depth > 0 else forms[: LEAVES[kind]])
        made = self.fill(text, depth - 1)
        if self.breaks and self.chance(self.breaks / 6):
            made = f"opaque({made})"
        return made

    def fill(self, text, depth):
        """Put expressions in place of ``<kind>`` in a form."""
        out = []
        while "<" in text:
            head, _, rest = text.partition("<")
            if rest.partition(">")[0] not in FILLS:
                out.append(head + "<")
                text = rest
                continue
            kind, _, text = rest.partition(">")
            out.append(head)
            out.append(self.placeholder(kind, depth))
        return "".join(out) + text

    def placeholder(self, kind, depth):
        if kind == "small":
            return str(self.choose.randint(-2, 7))
        if kind == "index":
            return str(self.choose.choice((0, 0, 1, 1, -1, 2, 3)))
        if kind == "word":
            return repr(self.choose.choice(WORDS))
        if kind == "error":
            return self.choose.choice(ERRORS)
        if kind in ("to_int", "to_tensor", "generator"):
            names = self.visible(kind)
            return self.choose.choice(names) if names else self.fill(EXPRESSIONS[kind][0], depth)
        if kind.startswith("plain_"):  # inside an f-string, where quotes do not nest before 3.12
            return self.expression(kind.removeprefix("plain_"), 0)
        made = self.expression(kind, depth)
        return made if made.isidentifier() or made[0] in "([{" and _closes_at_end(made) else f"({made})"

    # --- statements ------------------------------------------------------------------------------------------------

    def statement(self):
        if self.breaks and self.chance(self.breaks):
            self.write("torchmux.graph_break()")
        self.budget -= 1
        if self.budget < 0 or self.indent > 5:
            self.assign()
            return
        self.choose.choice(STATEMENTS)(self)

    def assign(self):
        kind = self.choose.choice(KINDS)
        value = self.expression(kind)
        own = [k for k, v in self.scope.names.items() if v == kind and k not in self.scope.fixed]
        name = self.choose.choice(own) if own and self.chance(0.5) else self.fresh()
        self.write(f"{name} = {value}")
        self.scope.names[name] = kind

    def change(self):
        """A statement that is only there for what it changes."""
        self.write(self.fill(self.choose.choice(CHANGES), 1))

    def augmented(self):
        own = [k for k, v in self.scope.names.items() if v in AUGMENTED and k not in self.scope.fixed]
        name = self.choose.choice(own) if own else None
        if name is None:
            self.assign()
            return
        operators, kind = AUGMENTED[self.scope.names[name]]
        self.write(f"{name} {self.choose.choice(operators)} {self.expression(kind, 1)}")

    def unpack(self):
        a, b = self.fresh(), self.fresh()
        form, kinds = self.choose.choice(UNPACKS)
        targets, _, value = form.rpartition(" = ")
        self.write(f"{targets.format(a=a, b=b)} = {self.fill(value, 1)}")
        self.scope.names.update({a: kinds[0], b: kinds[1]})

    def branch(self):
        self.write(f"if {self.condition()}:")
        self.body()
        while self.chance(0.25):
            self.write(f"elif {self.expression('bool')}:")
            self.body(2)
        if self.chance(0.5):
            self.write("else:")
            self.body()

    def condition(self):
        if self.chance(0.15):
            name = self.fresh("w")
            text = f"({name} := {self.expression('int', 1)}) > {self.choose.randint(0, 5)}"
            self.scope.names[name] = "int"
            return text
        return self.expression("bool")

    def loop(self):
        header, names, burns = self.choose.choice(LOOPS)
        targets = {target: self.fresh("i") for target in names}
        text = self.fill(header, 1)
        for target, name in targets.items():
            text = text.replace(target, name)
        self.write(f"for {text}:")
        self._loop_body({targets[t]: kind for t, kind in names.items()}, burns)

    def _loop_body(self, names, burns=False):
        before = dict(self.scope.names)
        self.loops += 1
        with self.block():
            if burns:
                self.write("burn()")
            self.scope.names.update(names)
            for _ in range(self.choose.randint(1, 3)):
                self.statement()
            if self.chance(0.4):
                self.write(f"if {self.expression('bool', 1)}:")
                self.write(INDENT + self.choose.choice(("break", "continue")))
                if self.chance(0.5):
                    self.statement()
        self.loops -= 1
        self.scope.names = {k: v for k, v in self.scope.names.items() if k in before or k in names and self.chance(0.2)}
        if self.chance(0.2):
            self.write("else:")
            self.body(2)

    def while_loop(self):
        name = self.fresh("c")
        self.write(f"{name} = {self.choose.randint(1, 3)}")
        extra = f" and {self.expression('bool', 1)}" if self.chance(0.4) else ""
        self.write(f"while {name} > 0{extra}:")
        self.scope.names[name] = "int"
        self.scope.fixed.add(name)
        with self.block():
            self.write(f"{name} -= 1")
        self._loop_body({})

    def attempt(self):
        self.write("try:")
        self.body()
        final = self.chance(0.4)
        handlers = self.choose.randint(0 if final else 1, 2)
        for error in self.choose.sample(CAUGHT, handlers):
            bound = self.chance(0.5)
            self.write(f"except {error}{' as error' if bound else ''}:")
            with self.block():
                if bound:
                    self.write("LOG.append((type(error).__name__, error.args))")
                for _ in range(self.choose.randint(1, 2)):
                    self.statement()
                if self.chance(0.15):
                    self.write("raise")
                elif self.chance(0.1):
                    self.write(f"raise Worse({self.expression('int', 1)}){' from error' if bound else ''}")
        if handlers and self.chance(0.3):
            self.write("else:")
            self.body(2)
        if final:
            self.write("finally:")
            self.finals += 1
            self.body(2)
            self.finals -= 1

    def with_block(self):
        form = self.choose.choice(WITHS)
        name = self.fresh()
        bound = " as " in form
        self.write(f"with {self.fill(form, 1).replace('NAME', name)}:")
        if bound:
            self.scope.names[name] = "text"
        self.body()

    def fail(self):
        form = self.choose.choice(FAILURES)
        self.write(self.fill(form, 1))

    def leave(self):
        if self.scope.kind == "generator":
            self.write(f"if {self.expression('bool', 1)}:")
            self.write(INDENT + "return 5")
        elif self.scope.kind == "to_int":
            self.write(f"if {self.expression('bool', 1)}:")
            self.write(INDENT + f"return {self.expression('int', 1)}")
        elif self.scope.kind == "to_tensor":
            self.write(f"if {self.expression('bool', 1)}:")
            self.write(INDENT + f"return {self.expression('tensor', 1)}")
        else:
            self.write(f"if {self.expression('bool', 1)}:")
            kinds = self.choose.choice((("tensor", "int"), ("ints",), ("tensor", "table", "thing")))
            self.write(INDENT + f"return {', '.join(self.expression(kind, 1) for kind in kinds)}")

    def define(self):
        """A nested function or generator that reads names around it, and writes some."""
        kind = self.choose.choice(("to_int", "to_int", "to_tensor", "generator"))
        name = self.fresh({"generator": "gen", "to_int": "fn", "to_tensor": "ft"}[kind])
        argument = self.fresh("p")
        extras = self.choose.choice(("", ", k=2", ", *rest", ", k=n", ", **named"))
        if self.chance(0.15) and kind != "generator":
            self.write("@traced")
        self.write(f"def {name}({argument}{extras}):")
        outer = self.scope
        own = {argument: "tensor" if kind == "to_tensor" else "int"}
        if "k=" in extras:
            own["k"] = "int"
        if self.visible("int") and self.chance(0.5):
            changed = self.choose.choice([k for k, v in outer.names.items() if v == "int"] or [""])
        else:
            changed = ""
        inner = Scope(own, outer, kind)
        loops, self.loops = self.loops, 0
        self.scope = inner
        self.indent += 1
        if changed and outer.kind is not None:
            self.write(f"nonlocal {changed}")
            self.write(f"{changed} = ({changed} + {self.expression('int', 1)}) % 23")
        for _ in range(self.choose.randint(1, 3)):
            self.statement()
            if kind == "generator":
                self.write(self.choose.choice((f"yield {self.expression('int', 1)}", "LOG.append((yield 1))")))
        if kind == "generator":
            if self.chance(0.3):
                self.write(f"yield from {self.expression('ints', 1)}")
        else:
            self.write(f"return {self.expression('int' if kind == 'to_int' else 'tensor', 1)}")
        self.indent -= 1
        self.scope = outer
        self.loops = loops
        if changed:
            outer.fixed.discard(changed)
        if kind == "generator":
            made = self.fresh("g")
            self.write(f"{made} = {name}({self.expression('int', 1)})")
            outer.names[made] = "generator"
        else:
            outer.names[name] = kind

    def match(self):
        subject, cases = self.choose.choice(MATCHES)
        self.write(f"match {self.fill(subject, 1)}:")
        self.indent += 1
        for pattern, names in cases:
            bound = {key: self.fresh("m") for key in names}
            text = pattern
            for key, name in bound.items():
                text = text.replace(key, name)
            self.write(f"case {text}:")
            before = dict(self.scope.names)
            with self.block():
                self.scope.names.update({bound[key]: names[key] for key in names})
                for _ in range(self.choose.randint(1, 2)):
                    self.statement()
            self.scope.names = before
        self.indent -= 1

    def delete(self):
        own = [k for k in self.scope.names if k.startswith("v") and k not in self.scope.fixed]
        if not own:
            self.assign()
            return
        name = self.choose.choice(own)
        self.write(f"del {name}")
        del self.scope.names[name]


def _closes_at_end(text):
    """Whether the bracket that a text begins with is closed by its last character."""
    depth = 0
    for position, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0:
            return position == len(text) - 1
    return False


STATEMENTS = (
    [Program.assign] * 6
    + [Program.change] * 6
    + [Program.augmented] * 2
    + [Program.unpack, Program.branch, Program.branch, Program.branch, Program.loop, Program.loop, Program.while_loop]
    + [Program.attempt, Program.attempt, Program.with_block, Program.fail, Program.leave, Program.define, Program.match]
    + [Program.delete]
)

_NUMBER = [0]


def function_of(source, namespace):
    """The function ``f`` of a program's source, with lines that tracebacks and break messages can show."""
    _NUMBER[0] += 1
    filename = f"<random program {_NUMBER[0]}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    made = {}
    exec(compile(source, filename, "exec"), namespace, made)
    return made["f"]
