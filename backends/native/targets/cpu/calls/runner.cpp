// What stands around a graph in each call, without frames of Python's: see torchmux/sooner.py for what a `Runner` does.
//
// Whatever is unusual about a call is left to the Python function that asks it, which says what a call means.

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace {

// A reference that goes at the end of a block.
struct Held {
  PyObject* object;
  explicit Held(PyObject* taken) : object(taken) {}
  Held(const Held&) = delete;
  ~Held() { Py_XDECREF(object); }
  operator PyObject*() const { return object; }
};

PyObject *word_doing, *word_owner, *word_level;

// Add one to the only item of a list.
bool count(PyObject* list) {
  if (list == nullptr || !PyList_CheckExact(list) || PyList_GET_SIZE(list) != 1) return false;
  Held item(Py_NewRef(PyList_GET_ITEM(list, 0)));
  Held one(PyLong_FromLong(1));
  PyObject* more = one.object ? PyNumber_Add(item, one) : nullptr;
  return more != nullptr && PyList_SetItem(list, 0, more) == 0;
}

// --- a runner -------------------------------------------------------------------------------------------------------

enum { CAPTURED, THREAD, IS_PROFILED, MODES, GRAPH, TRANSLATED, COUNT };

struct Runner {
  PyObject_HEAD
  vectorcallfunc call;
  PyObject* held[COUNT];
};

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

PyObject* make(PyTypeObject* cls, PyObject* args, PyObject*) {
  if (PyTuple_GET_SIZE(args) != COUNT) {
    PyErr_Format(PyExc_TypeError, "a runner is made of %d objects", int(COUNT));
    return nullptr;
  }
  PyObject* made = cls->tp_alloc(cls, 0);
  if (made == nullptr) return nullptr;
  Runner* self = reinterpret_cast<Runner*>(made);
  self->call = run_graph;
  for (int n = 0; n < COUNT; n++) self->held[n] = Py_NewRef(PyTuple_GET_ITEM(args, n));
  return made;
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  for (PyObject* each : reinterpret_cast<Runner*>(object)->held) Py_VISIT(each);
  return 0;
}

int clear(PyObject* object) {
  for (PyObject*& each : reinterpret_cast<Runner*>(object)->held) Py_CLEAR(each);
  return 0;
}

void free_runner(PyObject* object) {
  PyObject_GC_UnTrack(object);
  clear(object);
  PyTypeObject* cls = Py_TYPE(object);
  cls->tp_free(object);
  Py_DECREF(cls);
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Runner, call), READONLY, nullptr},
    {},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(make)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_runner)},
    {Py_tp_members, members},
    {},
};

PyType_Spec spec = {"torchmux.Runner", sizeof(Runner), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, slots};

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Returns the class.
PyObject* runner_class() {
  struct {
    PyObject** word;
    const char* text;
  } words[] = {{&word_doing, "doing"}, {&word_owner, "owner"}, {&word_level, "_current_level"}};
  for (auto& each : words) {
    if (*each.word == nullptr) *each.word = PyUnicode_InternFromString(each.text);
    if (*each.word == nullptr) return nullptr;
  }
  return PyType_FromSpec(&spec);
}
}
#pragma GCC visibility pop
