// What stands around a graph in each call, without frames of Python's: see torchmux/sooner.py for what a `Runner` does.
//
// Whatever is unusual about a call is left to the Python function that asks it, which says what a call means.

#include "held.h"

#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace {

PyObject *word_doing, *word_owner, *word_level;

// --- a runner -------------------------------------------------------------------------------------------------------

enum { CAPTURED, THREAD, IS_PROFILED, MODES, GRAPH, TRANSLATED, COUNT };

using Runner = Holding<COUNT>;

bool no_autocast() {
  const auto excluded = c10::impl::tls_local_dispatch_key_set().excluded_;
  return (excluded & c10::autocast_dispatch_keyset) == c10::autocast_dispatch_keyset;
}

// Whether the call is of the usual kind; -1 with an exception.
int is_usual(Runner* self) {
  if (!no_autocast()) return 0;
  Held profiled(PyObject_CallNoArgs(self->held[IS_PROFILED]));
  if (profiled.object == nullptr) return -1;
  if (profiled.object != Py_False) return 0;
  if (self->held[MODES] == Py_None) return 1;
  Held level(PyObject_GetAttr(self->held[MODES], word_level));
  if (level.object == nullptr) return -1;
  if (!PyLong_CheckExact(level.object)) return 0;
  const long found = PyLong_AsLong(level);
  if (found == -1 && PyErr_Occurred()) return -1;
  return found < 0;
}

PyObject* run_graph(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* names) {
  Runner* self = reinterpret_cast<Runner*>(object);
  if (PyVectorcall_NARGS(nargsf) != 1 || (names && PyTuple_GET_SIZE(names)) || !PyTuple_CheckExact(args[0])) {
    PyErr_SetString(PyExc_TypeError, "a runner takes one tuple");
    return nullptr;
  }
  if (self->held[GRAPH] == nullptr) Py_RETURN_NOTIMPLEMENTED;  // collected
  // What is called may let go of this.
  Held own(Py_NewRef(object)), inputs(Py_NewRef(args[0])), graph(Py_NewRef(self->held[GRAPH]));
  Held translated(Py_NewRef(self->held[TRANSLATED]));
  const int usual = is_usual(self);
  if (usual < 0) return nullptr;
  if (usual == 0) Py_RETURN_NOTIMPLEMENTED;
  {
    Held doing(PyObject_GetAttr(self->held[THREAD], word_doing));
    Held owner(doing.object ? PyObject_GetAttr(doing, word_owner) : nullptr);
    if (owner.object == nullptr) return nullptr;
    if (owner.object != Py_None) {
      Held counts(PyObject_GetItem(owner, self->held[CAPTURED]));
      if (counts.object == nullptr || !count(counts)) return nullptr;
    }
  }
  PyObject* results =
      PyObject_Vectorcall(graph, &PyTuple_GET_ITEM(inputs.object, 0), PyTuple_GET_SIZE(inputs.object), nullptr);
  if (results != nullptr) return results;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace != nullptr) PyException_SetTraceback(value, trace);
  Held told(PyObject_CallOneArg(translated, value));
  if (told.object != nullptr) {
    PyErr_Restore(type, value, trace);
  } else {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
  }
  return nullptr;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Returns the class.
PyObject* runner_class() {
  const bool known = intern(word_doing, "doing") && intern(word_owner, "owner") && intern(word_level, "_current_level");
  return known ? Runner::made_class<run_graph>("torchmux.Runner") : nullptr;
}
}
#pragma GCC visibility pop
