"""Exceptions: raising, catching, chaining, finally, groups of handlers, errors of tensor operations."""

import torch

from .corpus import case, tensor


class CustomError(ValueError):
    def __init__(self, code, x=None):
        super().__init__(f"code {code}")
        self.code = code
        self.x = x


def failing(x, kind):
    if kind == "value":
        raise ValueError("bad value")
    if kind == "key":
        raise KeyError("missing")
    if kind == "custom":
        raise CustomError(7, x)
    return x


@case(one_graph=True)
def case_raise_and_catch(x):
    try:
        failing(x, "value")
    except ValueError:
        x = x + 1
    return x


@case(one_graph=False)
def case_exception_object(x):
    try:
        failing(x, "custom")
    except ValueError as error:
        return error.x + error.code, str(error), error.args


@case(one_graph=False)
def case_handler_order(x):
    seen = []
    for kind in ("value", "key", "custom", "none"):
        try:
            failing(x, kind)
        except CustomError:
            seen.append("custom")
        except (KeyError, TypeError):
            seen.append("lookup")
        except ValueError:
            seen.append("value")
        else:
            seen.append("none")
        finally:
            x = x + 1
    return x, seen


@case(one_graph=False)
def case_uncaught(x):
    y = x + 1
    failing(y, "key")
    return y


@case(one_graph=False)
def case_uncaught_custom(x):
    raise CustomError(x.dim(), x * 2)


@case(one_graph=False)
def case_reraise(x):
    try:
        failing(x, "value")
    except ValueError:
        x = x + 1
        raise


@case(one_graph=False)
def case_raise_from(x):
    try:
        failing(x, "key")
    except KeyError as error:
        raise RuntimeError("wrapped") from error


@case(one_graph=False)
def case_raise_from_none(x):
    try:
        failing(x, "key")
    except KeyError:
        raise RuntimeError("alone") from None


@case(one_graph=True)
def case_context_is_kept(x):
    try:
        try:
            failing(x, "key")
        except KeyError:
            failing(x, "value")
    except ValueError as error:
        return x + 1, type(error.__context__).__name__, error.__cause__


@case(one_graph=True)
def case_finally_runs_on_return(x):
    log = []

    def work():
        try:
            return x + 1
        finally:
            log.append("finally")

    return work(), log


@case(one_graph=True)
def case_finally_overrides_return(x):
    def work():
        try:
            return x
        finally:
            return x * 2  # noqa: B012

    return work()


@case(one_graph=True)
def case_finally_in_loop(x):
    log = []
    for i in range(4):
        try:
            if i == 1:
                continue
            if i == 3:
                break
            x = x + i
        finally:
            log.append(i)
    return x, log


@case(one_graph=True)
def case_nested_try(x):
    log = []
    try:
        try:
            failing(x, "key")
        except ValueError:
            log.append("wrong")
        finally:
            log.append("inner")
    except KeyError:
        log.append("outer")
    return x * len(log), log


@case(one_graph=True)
def case_exception_from_inlined_call(x):
    def deep(n):
        if n == 0:
            raise IndexError("deep")
        return deep(n - 1)

    try:
        deep(3)
    except LookupError as error:
        return x + len(str(error))


@case(one_graph=False)
def case_name_of_handler_is_deleted(x):
    error = "before"
    try:
        failing(x, "value")
    except ValueError as error:  # noqa: F841
        pass
    return x, error


@case(one_graph=True)
def case_bare_except(x):
    try:
        x = x + {}["nothing"]
    except:  # noqa: E722
        x = x - 1
    return x


@case(one_graph=True)
def case_index_error_of_list(x):
    try:
        return [x][3]
    except IndexError as error:
        return x, str(error)


@case(one_graph=True)
def case_key_error_of_dict(x):
    try:
        return {"a": x}["b"]
    except KeyError as error:
        return x, error.args


@case(one_graph=True)
def case_attribute_error(x):
    try:
        return x.nothing
    except AttributeError:
        return x + 1


@case(one_graph=True)
def case_zero_division(x):
    try:
        return x * (1 // (x.dim() - 2))
    except ZeroDivisionError as error:
        return x, str(error)


@case(one_graph=True)
def case_type_error_of_operands(x):
    try:
        return x.dim() + "a"
    except TypeError as error:
        return x, str(error)


@case(one_graph=False)
def case_wrong_shapes(x):
    return x @ x


@case(one_graph=False)
def case_wrong_shapes_caught(x):
    try:
        y = x @ x
    except RuntimeError:
        y = x @ x.t()
    return y


@case(one_graph=False)
def case_assertion_error(x):
    assert x.size(0) == 4, f"expected 4 rows, got {x.size(0)}"
    return x


@case(one_graph=False)
def case_not_implemented(x):
    raise NotImplementedError


@case(one_graph=False)
def case_raise_what_is_no_exception(x):
    raise 5  # noqa: B016


@case(one_graph=False, inputs=lambda: (tensor(), []))
def case_changes_before_the_error_remain(x, log):
    log.append(x + 1)
    x.add_(1)
    log.append("then")
    raise ValueError("after changes")


@case(one_graph=False)
def case_unpack_error(x):
    a, b = x
    return a + b


@case(one_graph=False)
def case_except_star(x):
    seen = []
    try:
        raise ExceptionGroup("several", [ValueError("a"), KeyError("b")])
    except* ValueError as group:
        seen.append(len(group.exceptions))
    except* KeyError:
        seen.append("key")
    return x + 1, seen


@case(one_graph=True)
def case_raise_class(x):
    try:
        raise ValueError
    except ValueError as error:
        return x, error.args


@case(one_graph=False)
def case_isinstance_of_caught(x):
    caught = None
    try:
        torch.zeros(2).view(3)
    except RuntimeError as error:
        caught = error
    return x, isinstance(caught, RuntimeError)


@case(one_graph=False)
def case_add_note(x):
    try:
        failing(x, "value")
    except ValueError as error:
        error.add_note("a note")
        return x + len(error.__notes__)


@case(one_graph=True)
def case_loop_retries(x):
    attempts = 0
    while True:
        try:
            attempts += 1
            failing(x, "value" if attempts < 3 else "none")
            break
        except ValueError:
            x = x * 2
    return x, attempts
