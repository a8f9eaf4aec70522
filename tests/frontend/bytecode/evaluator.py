"""A concrete evaluator of micro-ops: it runs real Python objects by the meaning of the normalized set alone.

It is the specification of the micro-ops in executable form. It can stop before a raw instruction and hand out the frame
as it is there, which is what a captured part of a function hands to the trampoline.
"""

import builtins
import collections.abc
import operator
import types

from torchmux.frontend.bytecode import NULL_BELOW_CALLABLE, normalize


class _Null:
    def __repr__(self):
        return "NULL"


NULL = _Null()

BINARY = {
    "+": operator.add, "&": operator.and_, "//": operator.floordiv, "<<": operator.lshift, "@": operator.matmul,
    "*": operator.mul, "%": operator.mod, "|": operator.or_, "**": operator.pow, ">>": operator.rshift,
    "-": operator.sub, "/": operator.truediv, "^": operator.xor,
    "+=": operator.iadd, "&=": operator.iand, "//=": operator.ifloordiv, "<<=": operator.ilshift,
    "@=": operator.imatmul, "*=": operator.imul, "%=": operator.imod, "|=": operator.ior, "**=": operator.ipow,
    ">>=": operator.irshift, "-=": operator.isub, "/=": operator.itruediv, "^=": operator.ixor,
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip

UNARY = {
    "UNARY_NEGATIVE": operator.neg,
    "UNARY_POSITIVE": operator.pos,
    "UNARY_INVERT": operator.invert,
    "UNARY_NOT": operator.not_,
    "TO_BOOL": bool,
    "GET_ITER": iter,
    "LIST_TO_TUPLE": tuple,
}

CONVERT = {None: lambda value: value, "s": str, "r": repr, "a": ascii}


class Stopped(Exception):
    """Evaluation came to the raw instruction at which it was to stop."""


class Wrong(AssertionError):
    """The ops made no sense: the stack is not what an op needs."""


class Unsupported(Exception):
    """Evaluation came to an op outside of the normalized set."""


def check(right, *what):
    """Fail the test, not the evaluated function."""
    if not right:
        raise Wrong(*what)


class Unfinished:
    """A function whose closure a later op will set; from Python there is no making it before."""

    def __init__(self, code):
        self.code = code
        self.attributes = {}


class Evaluator:
    """One frame. ``before`` is called with (frame, raw index) ahead of every raw instruction that has ops."""

    def __init__(self, code, global_names, local_values, cells, before=None):
        self.code = code
        self.program = normalize(code)
        self.globals = global_names
        self.locals = dict(local_values)
        self.cells = dict(cells)
        self.before = before
        self.stack = []
        self.handled = None
        self.next = 0
        self.returned = False

    def pop(self):
        return self.stack.pop()

    def pop_many(self, count):
        if not count:
            return []
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    def push(self, value):
        self.stack.append(value)

    def run(self):
        """Run a frame that does not yield."""
        steps = self.steps()
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value
        raise Wrong("a plain function yielded")

    def steps(self):
        """Run as a generator that yields what the frame yields."""
        ops = self.program.ops
        seen = None
        while True:
            op = ops[self.next]
            try:
                if self.before is not None and op.index != seen and self.program.first_op[op.index] == self.next:
                    self.before(self, op.index)
                seen = op.index if op.target is None else None
                self.next += 1
                if op.name == "YIELD_VALUE":
                    self.push((yield self.pop()))
                elif op.name == "RETURN_GENERATOR":
                    self.push(None)
                elif op.name == "RETURN_VALUE":
                    check(len(self.stack) == 1, "return", self.stack)
                    return self.pop()
                else:
                    getattr(self, op.name, self.simple)(op)
            except (Stopped, Unsupported, Wrong):
                raise
            except BaseException as error:
                if op.handler is None:
                    raise
                target, depth, lasti = op.handler
                del self.stack[depth:]
                if lasti:
                    self.push(op.index)
                self.push(error)
                self.next = target
                seen = None

    def simple(self, op):
        name, arg = op.name, op.arg
        if name in UNARY:
            self.push(UNARY[name](self.pop()))
        elif name in ("BINARY_OP", "COMPARE_OP"):
            left, right = self.pop_many(2)
            self.push(BINARY[arg](left, right))
        else:
            raise Unsupported(name, arg)

    # Constants, names, locals and cells.

    def LOAD_CONST(self, op):
        self.push(op.arg)

    def LOAD_FAST(self, op):
        if op.arg not in self.locals:
            raise UnboundLocalError(op.arg)
        self.push(self.locals[op.arg])

    def LOAD_FAST_AND_CLEAR(self, op):
        self.push(self.locals.pop(op.arg, NULL))

    def STORE_FAST(self, op):
        value = self.pop()
        if value is NULL:
            self.locals.pop(op.arg, None)
        else:
            self.locals[op.arg] = value

    def DELETE_FAST(self, op):
        if op.arg not in self.locals:
            raise UnboundLocalError(op.arg)
        del self.locals[op.arg]

    def LOAD_CELL(self, op):
        self.push(self.cells[op.arg])

    def LOAD_DEREF(self, op):
        try:
            self.push(self.cells[op.arg].cell_contents)
        except ValueError:
            kind = NameError if op.arg in self.code.co_freevars else UnboundLocalError
            raise kind(op.arg) from None

    def STORE_DEREF(self, op):
        self.cells[op.arg].cell_contents = self.pop()

    def DELETE_DEREF(self, op):
        del self.cells[op.arg].cell_contents

    def LOAD_GLOBAL(self, op):
        if op.arg in self.globals:
            self.push(self.globals[op.arg])
        elif hasattr(builtins, op.arg):
            self.push(getattr(builtins, op.arg))
        else:
            raise NameError(op.arg)

    def STORE_GLOBAL(self, op):
        self.globals[op.arg] = self.pop()

    def DELETE_GLOBAL(self, op):
        del self.globals[op.arg]

    # The stack.

    def PUSH_NULL(self, op):
        self.push(NULL)

    def POP_TOP(self, op):
        check(self.pop() is not NULL, "pop")

    def COPY(self, op):
        self.push(self.stack[-op.arg])

    def SWAP(self, op):
        self.stack[-1], self.stack[-op.arg] = self.stack[-op.arg], self.stack[-1]

    # Attributes and items.

    def LOAD_ATTR(self, op):
        self.push(getattr(self.pop(), op.arg))

    def STORE_ATTR(self, op):
        value, target = self.pop_many(2)
        setattr(target, op.arg, value)

    def DELETE_ATTR(self, op):
        delattr(self.pop(), op.arg)

    def LOAD_SUPER_ATTR(self, op):
        function, cls, instance = self.pop_many(3)
        self.push(getattr(function(cls, instance), op.arg[0]))

    def BINARY_SUBSCR(self, op):
        container, key = self.pop_many(2)
        self.push(container[key])

    def STORE_SUBSCR(self, op):
        value, container, key = self.pop_many(3)
        container[key] = value

    def DELETE_SUBSCR(self, op):
        container, key = self.pop_many(2)
        del container[key]

    def BINARY_SLICE(self, op):
        container, start, stop = self.pop_many(3)
        self.push(container[start:stop])

    def STORE_SLICE(self, op):
        value, container, start, stop = self.pop_many(4)
        container[start:stop] = value

    # Calls.

    def call(self, function, args, kwargs):
        if function is builtins.super and not args:
            first = self.code.co_varnames[0]
            instance = self.cells[first].cell_contents if first in self.cells else self.locals[first]
            args = [self.cells["__class__"].cell_contents, instance]
        if function is builtins.locals:
            return dict(self.locals)
        return function(*args, **kwargs)

    def callable(self):
        """(callable, [first argument]): where there is no NULL, the entries are a callable and its first argument."""
        below, above = self.pop_many(2)
        if NULL_BELOW_CALLABLE and below is NULL:
            return above, []
        check(below is not NULL, "call", below, above)
        return below, [] if above is NULL else [above]

    def CALL(self, op):
        count, names = op.arg
        values = self.pop_many(count)
        positional = values[: count - len(names)]
        function, first = self.callable()
        self.push(self.call(function, first + positional, dict(zip(names, values[len(positional) :], strict=True))))

    def CALL_KW(self, op):
        names = self.pop()
        values = self.pop_many(op.arg)
        positional = values[: op.arg - len(names)]
        function, first = self.callable()
        self.push(self.call(function, first + positional, dict(zip(names, values[len(positional) :], strict=True))))

    def CALL_FUNCTION_EX(self, op):
        kwargs = self.pop() if op.arg else {}
        args = self.pop()
        function, first = self.callable()
        check(not first, "a first argument")
        self.push(self.call(function, args, kwargs))

    def MAKE_FUNCTION(self, op):
        code = self.pop()
        closure = self.pop() if op.arg & 8 else ()
        annotations = self.pop() if op.arg & 4 else ()
        kwdefaults = self.pop() if op.arg & 2 else None
        defaults = self.pop() if op.arg & 1 else None
        if len(closure) != len(code.co_freevars):
            self.push(Unfinished(code))
            return
        self.push(self.function(code, closure, annotations, kwdefaults, defaults))

    def function(self, code, closure, annotations=(), kwdefaults=None, defaults=None):
        made = types.FunctionType(code, self.globals, code.co_name, defaults, tuple(closure) or None)
        made.__kwdefaults__ = kwdefaults
        made.__annotations__ = dict(zip(annotations[::2], annotations[1::2], strict=True))
        return made

    def SET_FUNCTION_ATTRIBUTE(self, op):
        value, function = self.pop_many(2)
        if op.arg == 8:
            unfinished, function = function, self.function(function.code, value)
            for name, attribute in unfinished.attributes.items():
                setattr(function, name, attribute)
        name = {1: "__defaults__", 2: "__kwdefaults__", 4: "__annotations__"}.get(op.arg)
        if name == "__annotations__":
            value = dict(zip(value[::2], value[1::2], strict=True))
        if isinstance(function, Unfinished) and name is not None:
            function.attributes[name] = value
        elif name is not None:
            setattr(function, name, value)
        self.push(function)

    def LOAD_BUILD_CLASS(self, op):
        self.push(builtins.__build_class__)

    def LOAD_ASSERTION_ERROR(self, op):
        self.push(AssertionError)

    def IMPORT_NAME(self, op):
        level, names = self.pop_many(2)
        self.push(__import__(op.arg, self.globals, None, names, level))

    def IMPORT_FROM(self, op):
        self.push(getattr(self.stack[-1], op.arg))

    # Operators that have no symbol.

    def IS_OP(self, op):
        left, right = self.pop_many(2)
        self.push((left is right) != op.arg)

    def CONTAINS_OP(self, op):
        left, right = self.pop_many(2)
        self.push((left in right) != op.arg)

    # Building.

    def BUILD_TUPLE(self, op):
        self.push(tuple(self.pop_many(op.arg)))

    def BUILD_LIST(self, op):
        self.push(self.pop_many(op.arg))

    def BUILD_SET(self, op):
        self.push(set(self.pop_many(op.arg)))

    def BUILD_MAP(self, op):
        values = self.pop_many(2 * op.arg)
        self.push(dict(zip(values[::2], values[1::2], strict=True)))

    def BUILD_CONST_KEY_MAP(self, op):
        keys = self.pop()
        self.push(dict(zip(keys, self.pop_many(op.arg), strict=True)))

    def BUILD_STRING(self, op):
        self.push("".join(self.pop_many(op.arg)))

    def BUILD_SLICE(self, op):
        self.push(slice(*self.pop_many(op.arg)))

    def FORMAT_VALUE(self, op):
        conversion, has_spec = op.arg
        spec = self.pop() if has_spec else ""
        self.push(format(CONVERT[conversion](self.pop()), spec))

    def CONVERT_VALUE(self, op):
        self.push(CONVERT[op.arg](self.pop()))

    def LIST_EXTEND(self, op):
        value = self.pop()
        self.stack[-op.arg].extend(value)

    def LIST_APPEND(self, op):
        value = self.pop()
        self.stack[-op.arg].append(value)

    def SET_ADD(self, op):
        value = self.pop()
        self.stack[-op.arg].add(value)

    def SET_UPDATE(self, op):
        value = self.pop()
        self.stack[-op.arg].update(value)

    def MAP_ADD(self, op):
        key, value = self.pop_many(2)
        self.stack[-op.arg][key] = value

    def DICT_UPDATE(self, op):
        value = self.pop()
        self.stack[-op.arg].update(value)

    def DICT_MERGE(self, op):
        value = self.pop()
        target = self.stack[-op.arg]
        if target.keys() & value.keys():
            raise TypeError("got multiple values for a keyword argument")
        target.update(value)

    def UNPACK_SEQUENCE(self, op):
        values = list(self.pop())
        if len(values) > op.arg:
            raise ValueError(f"too many values to unpack (expected {op.arg})")
        if len(values) < op.arg:
            raise ValueError(f"not enough values to unpack (expected {op.arg}, got {len(values)})")
        self.stack.extend(reversed(values))

    def UNPACK_EX(self, op):
        before, behind = op.arg
        values = list(self.pop())
        if len(values) < before + behind:
            raise ValueError(f"not enough values to unpack (expected at least {before + behind}, got {len(values)})")
        middle = values[before : len(values) - behind]
        self.stack.extend(reversed([*values[:before], middle, *values[len(values) - behind :]]))

    # Control flow.

    def JUMP(self, op):
        self.next = op.target

    def POP_JUMP_IF_TRUE(self, op):
        if self.pop():
            self.next = op.target

    def POP_JUMP_IF_FALSE(self, op):
        if not self.pop():
            self.next = op.target

    def POP_JUMP_IF_NONE(self, op):
        if self.pop() is None:
            self.next = op.target

    def POP_JUMP_IF_NOT_NONE(self, op):
        if self.pop() is not None:
            self.next = op.target

    def JUMP_IF_TRUE_OR_POP(self, op):
        if self.stack[-1]:
            self.next = op.target
        else:
            self.pop()

    def JUMP_IF_FALSE_OR_POP(self, op):
        if not self.stack[-1]:
            self.next = op.target
        else:
            self.pop()

    def FOR_ITER(self, op):
        try:
            self.push(next(self.stack[-1]))
        except StopIteration:
            if op.arg:
                self.pop()
            self.next = op.target

    # Patterns.

    def GET_LEN(self, op):
        self.push(len(self.stack[-1]))

    def MATCH_MAPPING(self, op):
        self.push(isinstance(self.stack[-1], collections.abc.Mapping))

    def MATCH_SEQUENCE(self, op):
        value = self.stack[-1]
        text = isinstance(value, (str, bytes, bytearray))
        self.push(isinstance(value, collections.abc.Sequence) and not text)

    def MATCH_KEYS(self, op):
        subject, keys = self.stack[-2:]
        self.push(tuple(subject[key] for key in keys) if all(key in subject for key in keys) else None)

    def MATCH_CLASS(self, op):
        subject, cls, names = self.pop_many(3)
        if not isinstance(subject, cls):
            self.push(None)
        elif cls in (int, str, float, list, dict):
            self.push((subject,))
        else:
            wanted = [*cls.__match_args__[: op.arg], *names] if op.arg else names
            found = all(hasattr(subject, name) for name in wanted)
            self.push(tuple(getattr(subject, name) for name in wanted) if found else None)

    # Exceptions and context managers.

    def PUSH_EXC_INFO(self, op):
        error = self.pop()
        self.push(self.handled)
        self.push(error)
        self.handled = error

    def POP_EXCEPT(self, op):
        self.handled = self.pop()

    def RAISE_VARARGS(self, op):
        if op.arg == 0:
            raise self.handled
        if op.arg == 1:
            raise self.pop()
        error, cause = self.pop_many(2)
        raise error from cause

    def RERAISE(self, op):
        raise self.pop()

    def CHECK_EXC_MATCH(self, op):
        kind = self.pop()
        self.push(isinstance(self.stack[-1], kind))

    def CHECK_EG_MATCH(self, op):
        error, kind = self.pop_many(2)
        if not isinstance(error, BaseExceptionGroup) and isinstance(error, kind):
            match, rest = BaseExceptionGroup("", [error]), None
        else:
            match, rest = error.split(kind)
        self.push(rest)
        self.push(match)
        if match is not None:
            self.handled = match

    def PREP_RERAISE_STAR(self, op):
        _, errors = self.pop_many(2)
        left = [error for error in errors if error is not None]
        check(len(left) < 2, "more than the evaluator knows")
        self.push(left[0] if left else None)

    def BEFORE_WITH(self, op):
        manager = self.pop()
        self.push(types.MethodType(type(manager).__exit__, manager))
        self.push(type(manager).__enter__(manager))

    def WITH_EXCEPT_START(self, op):
        error = self.stack[-1]
        self.push(self.stack[-4](type(error), error, error.__traceback__))

    # Generators.

    def SEND(self, op):
        value = self.pop()
        receiver = self.stack[-1]
        try:
            self.push(next(receiver) if value is None else receiver.send(value))
        except StopIteration as stop:
            if op.arg:
                self.pop()
            self.push(stop.value)
            self.next = op.target

    def END_SEND(self, op):
        value = self.pop()
        self.pop()
        self.push(value)

    def GET_YIELD_FROM_ITER(self, op):
        value = self.pop()
        self.push(value if isinstance(value, types.GeneratorType) else iter(value))

    def INTRINSIC(self, op):
        check(op.arg == "STOPITERATION_ERROR", op.arg)
        error = self.pop()
        if isinstance(error, StopIteration):
            raised = RuntimeError("generator raised StopIteration")
            raised.__cause__ = error
            error = raised
        self.push(error)
