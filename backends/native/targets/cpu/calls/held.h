// Objects in C++ that hold others, and calls of Python's: what caller.cpp and runner.cpp share.

#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

namespace {

// A reference that goes at the end of a block.
struct Held {
  PyObject* object;
  explicit Held(PyObject* taken) : object(taken) {}
  Held(const Held&) = delete;
  ~Held() { Py_XDECREF(object); }
  operator PyObject*() const { return object; }
};

// Add one to the only item of a list.
bool count(PyObject* list) {
  if (list == nullptr || !PyList_CheckExact(list) || PyList_GET_SIZE(list) != 1) return false;
  Held item(Py_NewRef(PyList_GET_ITEM(list, 0)));
  Held one(PyLong_FromLong(1));
  PyObject* more = one.object ? PyNumber_Add(item, one) : nullptr;
  return more != nullptr && PyList_SetItem(list, 0, more) == 0;
}

bool intern(PyObject*& word, const char* text) {
  if (word == nullptr) word = PyUnicode_InternFromString(text);
  return word != nullptr;
}

[[maybe_unused]] PyObject* gone() {
  PyErr_SetString(PyExc_RuntimeError, "what this calls has been collected");
  return nullptr;
}

// An object that is made of so many others, is called, and holds nothing else.
template <int COUNT>
struct Holding {
  PyObject_HEAD
  vectorcallfunc call;
  PyObject* held[COUNT];

  static int traverse(PyObject* object, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(object));
    for (PyObject* each : reinterpret_cast<Holding*>(object)->held) Py_VISIT(each);
    return 0;
  }

  static int clear(PyObject* object) {
    for (PyObject*& each : reinterpret_cast<Holding*>(object)->held) Py_CLEAR(each);
    return 0;
  }

  static void free(PyObject* object) {
    PyObject_GC_UnTrack(object);
    clear(object);
    PyTypeObject* cls = Py_TYPE(object);
    cls->tp_free(object);
    Py_DECREF(cls);
  }

  template <vectorcallfunc CALL>
  static PyObject* make(PyTypeObject* cls, PyObject* args, PyObject*) {
    if (PyTuple_GET_SIZE(args) != COUNT) {
      PyErr_Format(PyExc_TypeError, "%s is made of %d objects", cls->tp_name, COUNT);
      return nullptr;
    }
    PyObject* made = cls->tp_alloc(cls, 0);
    if (made == nullptr) return nullptr;
    Holding* self = reinterpret_cast<Holding*>(made);
    self->call = CALL;
    for (int n = 0; n < COUNT; n++) self->held[n] = Py_NewRef(PyTuple_GET_ITEM(args, n));
    return made;
  }

  template <vectorcallfunc CALL>
  static PyObject* made_class(const char* name) {
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(Holding, call), READONLY, nullptr},
        {},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, reinterpret_cast<void*>(make<CALL>)},
        {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
        {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
        {Py_tp_clear, reinterpret_cast<void*>(clear)},
        {Py_tp_dealloc, reinterpret_cast<void*>(free)},
        {Py_tp_members, members},
        {},
    };
    PyType_Spec spec = {name, sizeof(Holding), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, slots};
    return PyType_FromSpec(&spec);
  }
};

}  // namespace
