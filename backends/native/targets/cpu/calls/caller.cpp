// A call of a compiled function with one entry, without frames of Python's: see torchmux/sooner.py for what a `Caller`
// does, and frontend/compiled.py and frontend/hook/direct.py for what it stands for.
//
// Whatever is unusual about a call is left to the Python function, which says what a call means.

#include "held.h"

namespace {

PyObject *word_current, *word_direct, *word_doing, *word_owner, *word_must_raise;

enum {
  PYTHON, RECORD, READY, STANCE, USUAL, THREAD, CALLS, CALLS_MADE, TIDY, PENDING, KEPT, FUNCTION, CODE, EPOCH, NOW,
  CHECK, NAMESPACE, COUNT
};

using Caller = Holding<COUNT>;

PyObject* in_python(Caller* self, PyObject* const* args, size_t nargs, PyObject* names) {
  Held python(Py_NewRef(self->held[PYTHON]));
  return PyObject_Vectorcall(python, args, nargs, names);
}

// The exception that is set, with the traceback that `tidy` makes of its own.
PyObject* tidied(PyObject* tidy) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace != nullptr) PyException_SetTraceback(value, trace);
  Py_XDECREF(trace);
  Held told(PyObject_CallOneArg(tidy, value));
  if (told.object == nullptr) {
    Py_XDECREF(type);
    Py_XDECREF(value);
  } else {
    PyErr_Restore(type, value, PyException_GetTraceback(value));
  }
  return nullptr;
}

// What runs in place of the function for these arguments: a new reference; None where Python has to find it.
PyObject* found(Caller* self, PyObject* const* args, Py_ssize_t given) {
  Held code(PyObject_CallNoArgs(self->held[KEPT]));
  if (code.object == nullptr) return nullptr;
  if (code.object == Py_None || PyFunction_GetCode(self->held[FUNCTION]) != self->held[CODE] ||
      PyList_GET_SIZE(self->held[EPOCH]) != 1)
    return Py_NewRef(Py_None);
  const int now = PyObject_RichCompareBool(PyList_GET_ITEM(self->held[EPOCH], 0), self->held[NOW], Py_EQ);
  if (now <= 0) return now < 0 ? nullptr : Py_NewRef(Py_None);
  Held values(PyTuple_New(given));
  if (values.object == nullptr) return nullptr;
  for (Py_ssize_t n = 0; n < given; n++) PyTuple_SET_ITEM(values.object, n, Py_NewRef(args[n]));
  Held passed(PyObject_CallOneArg(self->held[CHECK], values));
  if (passed.object == nullptr) return nullptr;
  const int holds = PyObject_IsTrue(passed);
  if (holds <= 0) return holds < 0 ? nullptr : Py_NewRef(Py_None);
  return PyFunction_New(code, self->held[NAMESPACE]);
}

PyObject* call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* names) {
  Caller* self = reinterpret_cast<Caller*>(object);
  const Py_ssize_t given = PyVectorcall_NARGS(nargsf) - 1;  // the first is no argument of the function's
  if (self->held[PYTHON] == nullptr) return gone();
  if (given < 0 || (names && PyTuple_GET_SIZE(names))) return in_python(self, args, nargsf, names);
  Held own(Py_NewRef(object)), record(Py_NewRef(self->held[RECORD]));  // what is called may let go of this
  {
    Held direct(PyObject_GetAttr(record, word_direct)), stance(PyObject_GetAttr(self->held[STANCE], word_current));
    if (direct.object == nullptr || stance.object == nullptr) return nullptr;
    if (direct.object != self->held[READY] || stance.object != self->held[USUAL])
      return in_python(self, args, nargsf, names);
  }
  Held tidy(Py_NewRef(self->held[TIDY])), pending(Py_NewRef(self->held[PENDING]));
  Held doing(PyObject_GetAttr(self->held[THREAD], word_doing));
  Held outer(doing.object ? PyObject_GetAttr(doing, word_owner) : nullptr);
  if (outer.object == nullptr || PyObject_SetAttr(doing, word_owner, record) < 0) return nullptr;
  PyObject* result = nullptr;
  Held function(found(self, args + 1, given));
  const bool left = function.object == Py_None;
  if (function.object != nullptr && !left) {
    if ((outer.object != Py_None || count(self->held[CALLS_MADE])) && count(self->held[CALLS]))
      result = PyObject_Vectorcall(function, args + 1, given, nullptr);
  }
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  bool fails = type != nullptr && PyObject_SetAttr(record, word_must_raise, Py_None) < 0;
  fails |= PyObject_SetAttr(doing, word_owner, outer) < 0;
  if (!fails) {
    Held waiting(PyObject_GetAttr(record, word_must_raise));
    fails = waiting.object == nullptr;
    if (!fails && waiting.object != Py_None) {
      Held raised(PyObject_CallOneArg(pending, record));
      fails = raised.object == nullptr;
    }
  }
  if (fails) {  // which takes the place of all else
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    Py_XDECREF(result);
    return tidied(tidy);
  }
  if (type != nullptr) {
    PyErr_Restore(type, value, trace);
    return tidied(tidy);
  }
  return left ? in_python(self, args, nargsf, names) : result;  // which asks once more, and goes another way
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Returns the class.
PyObject* caller_class() {
  const bool known = intern(word_current, "current") && intern(word_direct, "direct") && intern(word_doing, "doing") &&
                     intern(word_owner, "owner") && intern(word_must_raise, "must_raise");
  return known ? Caller::made_class<call>("torchmux.Caller") : nullptr;
}
}
#pragma GCC visibility pop
