// Calls of small compiled graphs: what the Python function `run` of a graph does, without Python.
//
// A `Call` is made of a plan (plan.py) and of `run`.  It checks first that all is as the plan expects, and hands every
// other call on to `run`, before anything has happened that can be seen.  So `run` says what a call means.

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <ATen/EmptyTensor.h>
#include <ATen/core/TensorBase.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/SmallVector.h>

#include <new>
#include <vector>

// python_variable.h declares this, and takes ten times as long to compile as all else here.
PyObject* THPVariable_Wrap(const at::TensorBase& tensor);

namespace {

using i64 = int64_t;
template <typename T>
using Few = c10::SmallVector<T, 16>;

constexpr int REPORTED = 3;  // the numbers that tell of a fault
constexpr int DEEPEST = 16;  // of the stack that an expression needs

// Set when the extension is loaded: where in its Python object the address of a tensor is, and the classes whose
// methods nobody replaces.
Py_ssize_t place_of_address = 0;
PyTypeObject* plain_classes[2] = {};

enum Operation { NUMBER, SYMBOL, ADD, MULTIPLY, DIVIDE, REMAINDER, AT_LEAST_ONE };

struct Step {
  i64 operation, operand;
};

struct Expression {
  i64 number = 0;  // if there are no steps
  std::vector<Step> steps;

  // False where the result is beyond 64 bits, or a division is by none.
  bool value(const i64* symbols, i64& result) const {
    if (steps.empty()) {
      result = number;
      return true;
    }
    i64 stack[DEEPEST];
    int top = -1;
    for (const Step& step : steps) {
      switch (step.operation) {
        case NUMBER: stack[++top] = step.operand; break;
        case SYMBOL: stack[++top] = symbols[step.operand]; break;
        case AT_LEAST_ONE: stack[top] = stack[top] > 1 ? stack[top] : 1; break;
        default: {
          i64 right = stack[top--], &left = stack[top];
          if (step.operation == ADD) {
            if (__builtin_add_overflow(left, right, &left)) return false;
          } else if (step.operation == MULTIPLY) {
            if (__builtin_mul_overflow(left, right, &left)) return false;
          } else {
            if (right <= 0) return false;
            i64 quotient = left / right, rest = left % right;
            if (rest < 0) {
              quotient--;
              rest += right;
            }
            left = step.operation == DIVIDE ? quotient : rest;
          }
        }
      }
    }
    result = stack[0];
    return true;
  }
};

bool values(const std::vector<Expression>& expressions, const i64* symbols, Few<i64>& results) {
  results.resize(expressions.size());
  for (size_t n = 0; n < expressions.size(); n++) {
    if (!expressions[n].value(symbols, results[n])) return false;
  }
  return true;
}

struct Input {
  i64 at, dtype;
  bool contiguous;
  std::vector<Expression> strides;
};

enum Told { IS_NUMBER, IS_SIZE, IS_STRIDE, IS_COMPUTED };

struct Symbol {
  i64 told, at, dimension, offset, factor, divisor;
  Expression computed;
};

struct Made {
  i64 dtype;
  std::vector<Expression> sizes, strides;
};

enum Place { INPUT, MADE, CONSTANT };

struct Tensor {
  i64 place, at;
};

enum Shown { AS_IT_IS, TRANSPOSED, VIEWED, STRIDED, COUNTED };

struct Result {
  i64 shown;
  Tensor tensor;
  std::vector<Expression> sizes, strides;
  Expression offset;
};

struct Plan {
  i64 count = 0;
  std::vector<Symbol> symbols;
  std::vector<Expression> needs;
  std::vector<Input> inputs;
  std::vector<Made> made;
  std::vector<i64> written;
  std::vector<Tensor> table;
  bool has_arena = false;
  i64 arena_from = 0;
  Expression arena;
  bool verifies = false;
  std::vector<Result> results;
  std::vector<char> reads;  // for each parameter, whether its tensor is looked at
};

using Launch = i64 (*)(char**, char*, const i64*);

struct Call {
  PyObject_HEAD
  vectorcallfunc call;
  PyObject *run, *fault, *scratch, *constants;  // `scratch` makes the arena, if not None
  PyObject* attributes;
  Launch launch;
  Plan* plan;
};

// --- tensors --------------------------------------------------------------------------------------------------------

const auto allowed_keys = (c10::DispatchKeySet(c10::DispatchKey::CPU) | c10::DispatchKeySet(c10::DispatchKey::AutogradCPU) |
                           c10::DispatchKeySet(c10::DispatchKey::AutocastCPU) |
                           c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView))
                              .raw_repr();

c10::TensorImpl* address_in(PyObject* object) {
  return *reinterpret_cast<c10::TensorImpl**>(reinterpret_cast<char*>(object) + place_of_address);
}

// The tensor of an object, if it is a plain one in memory of its own: no subclass, fake, batched or negative one.
c10::TensorImpl* plain(PyObject* object) {
  if (Py_TYPE(object) != plain_classes[0] && Py_TYPE(object) != plain_classes[1]) return nullptr;
  c10::TensorImpl* found = address_in(object);
  if (found == nullptr) return nullptr;
  const c10::DispatchKeySet keys = found->key_set();
  if ((keys.raw_repr() & ~allowed_keys) || !keys.has(c10::DispatchKey::CPU)) return nullptr;
  return found;
}

char* data_of(c10::TensorImpl* tensor) { return static_cast<char*>(tensor->mutable_data()); }

// --- a call ---------------------------------------------------------------------------------------------------------

struct Running {
  Few<c10::TensorImpl*> tensors;
  Few<i64> symbols;
  Few<at::TensorBase> made;
};

bool lies_as_expected(const Input& input, c10::TensorImpl* tensor, const i64* symbols) {
  if (static_cast<i64>(tensor->dtype().toScalarType()) != input.dtype) return false;
  if (input.contiguous) return tensor->is_contiguous();
  const auto sizes = tensor->sizes(), strides = tensor->strides();
  if (sizes.size() != input.strides.size()) return false;
  for (size_t n = 0; n < sizes.size(); n++) {
    i64 expected;
    if (!input.strides[n].value(symbols, expected)) return false;
    if (strides[n] != expected && sizes[n] > 1) return false;  // others reach no element
  }
  return true;
}

bool read(const Symbol& symbol, PyObject* const* args, const Running& running, i64& result) {
  if (symbol.told == IS_COMPUTED) return symbol.computed.value(running.symbols.data(), result);
  if (symbol.told == IS_NUMBER) {
    if (!PyLong_CheckExact(args[symbol.at])) return false;
    int overflow = 0;
    result = PyLong_AsLongLongAndOverflow(args[symbol.at], &overflow);
    if (overflow) return false;
  } else {
    c10::TensorImpl* tensor = running.tensors[symbol.at];
    if (symbol.dimension >= tensor->dim()) return false;
    result = symbol.told == IS_SIZE ? tensor->sizes()[symbol.dimension] : tensor->strides()[symbol.dimension];
  }
  if (__builtin_sub_overflow(result, symbol.offset, &result)) return false;
  for (i64 by : {symbol.factor, symbol.divisor}) {
    i64 rest = result % by;
    result = result / by - (rest < 0);
  }
  return true;
}

// Look at the inputs and make the results; false where `run` has to be called.
bool prepare(const Plan& plan, PyObject* const* args, Running& running) {
  running.tensors.resize(plan.count);
  for (i64 n = 0; n < plan.count; n++) {
    if (!plan.reads[n]) continue;
    if ((running.tensors[n] = plain(args[n])) == nullptr) return false;
  }
  running.symbols.resize(plan.symbols.size());
  for (size_t n = 0; n < plan.symbols.size(); n++) {
    if (!read(plan.symbols[n], args, running, running.symbols[n])) return false;
  }
  const i64* symbols = running.symbols.data();
  for (const Expression& need : plan.needs) {
    i64 found;
    if (!need.value(symbols, found) || found == 0) return false;
  }
  for (const Input& input : plan.inputs) {
    if (!lies_as_expected(input, running.tensors[input.at], symbols)) return false;
  }
  for (i64 at : plan.written) {
    if (running.tensors[at]->is_inference()) return false;
  }
  Few<i64> sizes, strides;
  for (const Made& made : plan.made) {
    if (!values(made.sizes, symbols, sizes) || !values(made.strides, symbols, strides)) return false;
    running.made.push_back(at::detail::empty_strided_cpu(sizes, strides, static_cast<c10::ScalarType>(made.dtype)));
  }
  return true;
}

PyObject* tuple_of(const std::vector<Expression>& expressions, const i64* symbols) {
  PyObject* found = PyTuple_New(expressions.size());
  for (size_t n = 0; found && n < expressions.size(); n++) {
    i64 value = 0;
    if (!expressions[n].value(symbols, value)) PyErr_SetString(PyExc_OverflowError, "a size is beyond 64 bits");
    PyObject* item = PyErr_Occurred() ? nullptr : PyLong_FromLongLong(value);
    if (item == nullptr) Py_CLEAR(found);
    else PyTuple_SET_ITEM(found, n, item);
  }
  return found;
}

// What the caller gets: a new reference.
PyObject* result_of(const Result& result, Call* self, PyObject* const* args, Few<PyObject*>& wrapped, Running& running) {
  const i64* symbols = running.symbols.data();
  if (result.shown == COUNTED) {
    i64 value = 0;
    if (result.offset.value(symbols, value)) return PyLong_FromLongLong(value);
    PyErr_SetString(PyExc_OverflowError, "a number of a compiled graph is beyond 64 bits");
    return nullptr;
  }
  const Tensor at = result.tensor;
  PyObject* base = at.place == INPUT ? args[at.at] : at.place == CONSTANT ? PyTuple_GET_ITEM(self->constants, at.at) : nullptr;
  if (at.place == MADE) {
    PyObject*& known = wrapped[at.at];
    if (known == nullptr) known = THPVariable_Wrap(running.made[at.at]);
    if ((base = known) == nullptr) return nullptr;
  }
  if (result.shown == AS_IT_IS) return Py_NewRef(base);
  if (result.shown == TRANSPOSED) return PyObject_CallMethod(base, "t", nullptr);
  PyObject* sizes = tuple_of(result.sizes, symbols);
  if (sizes == nullptr) return nullptr;
  PyObject* found = nullptr;
  if (result.shown == VIEWED) {
    found = PyObject_CallMethod(base, "view", "(O)", sizes);
  } else if (PyObject* strides = tuple_of(result.strides, symbols)) {
    i64 offset = 0;
    if (!result.offset.value(symbols, offset)) {
      PyErr_SetString(PyExc_OverflowError, "an offset is beyond 64 bits");
    } else {
      offset += address_in(base)->storage_offset();
      found = PyObject_CallMethod(base, "as_strided", "OOL", sizes, strides, static_cast<long long>(offset));
    }
    Py_DECREF(strides);
  }
  Py_DECREF(sizes);
  return found;
}

PyObject* results_of(Call* self, PyObject* const* args, Running& running) {
  const Plan& plan = *self->plan;
  Few<PyObject*> wrapped(plan.made.size(), nullptr);
  PyObject* results = PyTuple_New(plan.results.size());
  for (size_t n = 0; results && n < plan.results.size(); n++) {
    PyObject* item = nullptr;
    try {
      item = result_of(plan.results[n], self, args, wrapped, running);
    } catch (const std::exception& error) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    if (item == nullptr) Py_CLEAR(results);
    else PyTuple_SET_ITEM(results, n, item);
  }
  for (PyObject* tensor : wrapped) Py_XDECREF(tensor);
  return results;
}

PyObject* raise_fault(Call* self, const i64* told) {
  PyObject* error = nullptr;
  if (PyObject* numbers = Py_BuildValue("[LLL]", (long long)told[0], (long long)told[1], (long long)told[2])) {
    error = PyObject_CallOneArg(self->fault, numbers);
    Py_DECREF(numbers);
  }
  if (error != nullptr) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
    Py_DECREF(error);
  }
  return nullptr;
}

PyObject* handed_on(Call* self, PyObject* const* args, size_t nargs, PyObject* names) {
  return PyObject_Vectorcall(self->run, args, nargs, names);
}

PyObject* call(PyObject* object, PyObject* const* args, size_t nargs, PyObject* names) {
  Call* self = reinterpret_cast<Call*>(object);
  if (self->constants == nullptr || (names && PyTuple_GET_SIZE(names)) || PyVectorcall_NARGS(nargs) != self->plan->count)
    return handed_on(self, args, nargs, names);
  const Plan& plan = *self->plan;
  Running running;
  c10::DataPtr own_arena;
  PyObject* kept_arena = nullptr;
  char* arena = nullptr;
  Few<char*> table;
  const size_t addresses = plan.table.size(), symbols = plan.symbols.size();
  try {
    if (!prepare(plan, args, running)) return handed_on(self, args, nargs, names);
    // Sizes follow the addresses where the table is what says which fault there was.
    table.resize(std::max<size_t>(addresses + symbols, plan.verifies ? REPORTED : 0), nullptr);
    for (size_t n = 0; n < addresses; n++) {
      const Tensor at = plan.table[n];
      c10::TensorImpl* tensor = at.place == INPUT    ? running.tensors[at.at]
                                : at.place == MADE ? running.made[at.at].unsafeGetTensorImpl()
                                                   : address_in(PyTuple_GET_ITEM(self->constants, at.at));
      table[n] = data_of(tensor);
    }
    std::copy_n(running.symbols.data(), symbols, reinterpret_cast<i64*>(table.data() + addresses));
    i64 bytes = 0;
    if (plan.has_arena && !plan.arena.value(running.symbols.data(), bytes)) return handed_on(self, args, nargs, names);
    if (plan.has_arena && bytes > plan.arena_from) {
      if (self->scratch == Py_None) {
        own_arena = c10::GetCPUAllocator()->allocate(bytes);
        arena = static_cast<char*>(own_arena.get());
      } else {
        PyObject* size = PyLong_FromLongLong(bytes);
        kept_arena = size ? PyObject_CallOneArg(self->scratch, size) : nullptr;
        Py_XDECREF(size);
        c10::TensorImpl* tensor = kept_arena ? plain(kept_arena) : nullptr;
        if (tensor == nullptr) {
          PyErr_Clear();
          Py_XDECREF(kept_arena);
          return handed_on(self, args, nargs, names);
        }
        arena = data_of(tensor);
      }
    }
    for (i64 at : plan.written) running.tensors[at]->bump_version();
  } catch (const std::exception&) {  // there is no memory, say: `run` says so as it always does
    Py_XDECREF(kept_arena);
    return handed_on(self, args, nargs, names);
  }
  i64 failed;
  const i64* sizes = symbols ? reinterpret_cast<i64*>(table.data() + addresses) : nullptr;
  Py_BEGIN_ALLOW_THREADS
  failed = self->launch(table.empty() ? nullptr : table.data(), arena, sizes);
  Py_END_ALLOW_THREADS
  Py_XDECREF(kept_arena);
  if (plan.verifies && failed) return raise_fault(self, reinterpret_cast<i64*>(table.data()));
  return results_of(self, args, running);
}

// --- how a plan is read ---------------------------------------------------------------------------------------------

struct Malformed {};

PyObject* item(PyObject* tuple, Py_ssize_t at) {
  if (!PyTuple_Check(tuple) || at >= PyTuple_GET_SIZE(tuple)) throw Malformed();
  return PyTuple_GET_ITEM(tuple, at);
}

i64 number(PyObject* object) {
  i64 found = PyLong_AsLongLong(object);
  if (PyErr_Occurred()) throw Malformed();
  return found;
}

i64 number_below(PyObject* object, i64 limit) {
  i64 found = number(object);
  if (found < 0 || found >= limit) throw Malformed();
  return found;
}

template <typename Make>
auto many(PyObject* tuple, Make make) {
  if (!PyTuple_Check(tuple)) throw Malformed();
  std::vector<decltype(make(tuple))> found;
  for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(tuple); n++) found.push_back(make(PyTuple_GET_ITEM(tuple, n)));
  return found;
}

struct Reader {
  Plan& plan;
  i64 symbols, constants;  // how many are known so far

  Expression expression(PyObject* object) const {
    Expression found;
    if (PyLong_Check(object)) {
      found.number = number(object);
      return found;
    }
    int depth = 0;
    found.steps = many(object, [&](PyObject* step) {
      const i64 operation = number_below(item(step, 0), AT_LEAST_ONE + 1), operand = number(item(step, 1));
      if (operation == SYMBOL && (operand < 0 || operand >= symbols)) throw Malformed();
      depth += operation <= SYMBOL ? 1 : operation == AT_LEAST_ONE ? 0 : -1;
      if (depth < 1 || depth > DEEPEST) throw Malformed();
      return Step{operation, operand};
    });
    if (depth != 1) throw Malformed();
    return found;
  }

  std::vector<Expression> expressions(PyObject* object) const {
    return many(object, [&](PyObject* each) { return expression(each); });
  }

  i64 parameter(PyObject* object, bool is_tensor = true) const {
    const i64 at = number_below(object, plan.count);
    if (is_tensor) plan.reads[at] = 1;
    return at;
  }

  Tensor tensor(PyObject* object) const {
    const i64 place = number_below(item(object, 0), CONSTANT + 1);
    if (place == INPUT) return {place, parameter(item(object, 1))};
    return {place, number_below(item(object, 1), place == MADE ? i64(plan.made.size()) : constants)};
  }

  void read(PyObject* told) {
    plan.count = number(item(told, 0));
    if (plan.count < 0 || plan.count > 1 << 20) throw Malformed();
    plan.reads.resize(plan.count);
    for (Py_ssize_t n = 0; n < PyTuple_Size(item(told, 1)); n++) {
      PyObject* each = item(item(told, 1), n);
      Symbol symbol{number_below(item(each, 0), IS_COMPUTED + 1), 0, 0, 0, 1, 1, {}};
      if (symbol.told == IS_COMPUTED) {
        symbol.computed = expression(item(each, 1));
      } else {
        symbol.at = parameter(item(each, 1), symbol.told != IS_NUMBER);
        symbol.dimension = number_below(item(each, 2), 64);
        symbol.offset = number(item(each, 3));
        symbol.factor = number(item(each, 4));
        symbol.divisor = number(item(each, 5));
        if (symbol.factor <= 0 || symbol.divisor <= 0) throw Malformed();
      }
      plan.symbols.push_back(std::move(symbol));
      symbols++;
    }
    plan.needs = expressions(item(told, 2));
    plan.inputs = many(item(told, 3), [&](PyObject* each) {
      PyObject* strides = item(each, 2);
      const bool contiguous = strides == Py_None;
      return Input{parameter(item(each, 0)), number(item(each, 1)), contiguous,
                   contiguous ? std::vector<Expression>() : expressions(strides)};
    });
    plan.made = many(item(told, 4), [&](PyObject* each) {
      Made made{number(item(each, 0)), expressions(item(each, 1)), expressions(item(each, 2))};
      if (made.sizes.size() != made.strides.size()) throw Malformed();
      return made;
    });
    plan.written = many(item(told, 5), [&](PyObject* each) { return parameter(each); });
    plan.table = many(item(told, 6), [&](PyObject* each) { return tensor(each); });
    PyObject* arena = item(told, 7);
    if (arena != Py_None) {
      plan.has_arena = true;
      plan.arena = expression(item(arena, 0));
      plan.arena_from = number(item(arena, 1));
    }
    plan.verifies = number(item(told, 8)) != 0;
    plan.results = many(item(told, 9), [&](PyObject* each) {
      Result result{number_below(item(each, 0), COUNTED + 1), {0, 0}, {}, {}, {}};
      if (result.shown == COUNTED) {
        result.offset = expression(item(each, 1));
        return result;
      }
      result.tensor = tensor(item(each, 1));
      if (result.shown == VIEWED || result.shown == STRIDED) result.sizes = expressions(item(each, 2));
      if (result.shown == STRIDED) {
        result.strides = expressions(item(each, 3));
        result.offset = expression(item(each, 4));
      }
      return result;
    });
  }
};

// --- the class ------------------------------------------------------------------------------------------------------

PyObject* make(PyTypeObject* cls, PyObject* args, PyObject*) {
  PyObject *run, *fault, *scratch, *constants, *plan;
  unsigned long long address;
  if (!PyArg_ParseTuple(args, "OKOOO!O!", &run, &address, &fault, &scratch, &PyTuple_Type, &constants, &PyTuple_Type,
                        &plan))
    return nullptr;
  for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(constants); n++) {
    if (place_of_address == 0 || plain(PyTuple_GET_ITEM(constants, n)) == nullptr) {
      PyErr_SetString(PyExc_ValueError, "a constant is no plain tensor");
      return nullptr;
    }
  }
  Call* self = reinterpret_cast<Call*>(cls->tp_alloc(cls, 0));
  if (self == nullptr) return nullptr;
  self->call = call;
  self->run = Py_NewRef(run);
  self->fault = Py_NewRef(fault);
  self->scratch = Py_NewRef(scratch);
  self->constants = Py_NewRef(constants);
  self->launch = reinterpret_cast<Launch>(address);
  try {
    self->plan = new Plan();
    Reader{*self->plan, 0, PyTuple_GET_SIZE(constants)}.read(plan);
    return reinterpret_cast<PyObject*>(self);
  } catch (const Malformed&) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "not a plan of a call");
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  }
  Py_DECREF(self);
  return nullptr;
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  Call* self = reinterpret_cast<Call*>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->run);
  Py_VISIT(self->fault);
  Py_VISIT(self->scratch);
  Py_VISIT(self->constants);
  Py_VISIT(self->attributes);
  return 0;
}

// A call may still come, from what the collector clears later; it then finds nothing to call.
int clear(PyObject* object) {
  Call* self = reinterpret_cast<Call*>(object);
  Py_CLEAR(self->constants);
  Py_CLEAR(self->scratch);
  Py_CLEAR(self->attributes);
  return 0;
}

void free_call(PyObject* object) {
  PyObject_GC_UnTrack(object);
  Call* self = reinterpret_cast<Call*>(object);
  PyTypeObject* cls = Py_TYPE(object);
  Py_CLEAR(self->run);
  Py_CLEAR(self->fault);
  Py_CLEAR(self->scratch);
  Py_CLEAR(self->constants);
  Py_CLEAR(self->attributes);
  delete self->plan;
  cls->tp_free(object);
  Py_DECREF(cls);
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Call, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(Call, attributes), READONLY, nullptr},
    {"run", T_OBJECT_EX, offsetof(Call, run), READONLY, nullptr},
    {},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(make)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_call)},
    {Py_tp_members, members},
    {},
};

PyType_Spec spec = {"torchmux.Call", sizeof(Call), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, slots};

}  // namespace

// What Python asks when it loads the extension, with the interpreter's lock held.
#pragma GCC visibility push(default)
extern "C" {

// Returns the class.
PyObject* call_class(Py_ssize_t place, PyObject* tensor, PyObject* parameter) {
  place_of_address = place;
  plain_classes[0] = reinterpret_cast<PyTypeObject*>(Py_NewRef(tensor));
  plain_classes[1] = reinterpret_cast<PyTypeObject*>(Py_NewRef(parameter));
  return PyType_FromSpec(&spec);
}

// What this code takes for the address, the data, the dtype's number, the version, sizes and strides of a tensor.
PyObject* told_of(PyObject* object) {
  c10::TensorImpl* tensor = plain(object);
  if (tensor == nullptr) Py_RETURN_NONE;
  PyObject* numbers = PyList_New(0);
  auto add = [&](long long value) {
    PyObject* item = PyLong_FromLongLong(value);
    if (item != nullptr) PyList_Append(numbers, item);
    Py_XDECREF(item);
  };
  add(reinterpret_cast<long long>(tensor));
  add(static_cast<long long>(tensor->dtype().toScalarType()));
  add(reinterpret_cast<long long>(data_of(tensor)));
  add(tensor->is_inference() ? 0 : tensor->version_counter().current_version());
  for (i64 size : tensor->sizes()) add(size);
  for (i64 stride : tensor->strides()) add(stride);
  return numbers;
}
}
#pragma GCC visibility pop
