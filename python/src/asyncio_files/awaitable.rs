//! The type of awaitables: coroutines that are written in Rust.
//!
//! It has the slot `am_send` (Python 3.10), through which the interpreter takes a result without an
//! exception StopIteration. PyO3 has no such slot.
//!
//! It has the methods of `collections.abc.Coroutine`, so that `asyncio.create_task`, `gather` and
//! `wait_for` accept it.
#![allow(unsafe_code, reason = "PyO3 has no slot am_send")]

use std::any::Any;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use pyo3::exceptions::{PyStopIteration, PySystemError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

use super::operation::{Operation, Request, Step};
use crate::hang;

/// The memory of an awaitable.
#[repr(C)]
struct Object {
    head: ffi::PyObject,
    operation: Cell<Operation>,
}

/// The type, which is made with the module.
static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Makes an awaitable that does the request at its first step.
///
/// # Errors
/// MemoryError.
#[inline]
pub fn awaitable(py: Python<'_>, request: impl Request + 'static) -> PyResult<Py<PyAny>> {
    let class = class(py)?.as_ptr().cast();
    // SAFETY: the type is a ready one. The result is an owned reference, or null with an exception
    // set.
    let object = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_GenericAlloc(class, 0))? };
    let memory = object.as_ptr().cast::<Object>();
    // SAFETY: `basicsize` is that of `Object`. The field is not initialised yet, and nothing else
    // has seen the object: a garbage collection cannot begin between the two calls.
    unsafe {
        ptr::write(
            &raw mut (*memory).operation,
            Cell::new(Operation::New(Box::new(request))),
        )
    };
    Ok(object.unbind())
}

/// The type of all awaitables.
pub fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    TYPE.get_or_try_init(py, || make(py))
        .map(|class| class.bind(py))
}

/// The methods, to the null one at the end.
fn methods() -> [ffi::PyMethodDef; 4] {
    let method = |name: &'static std::ffi::CStr, meth, flags, doc: &'static std::ffi::CStr| {
        ffi::PyMethodDef {
            ml_name: name.as_ptr(),
            ml_meth: meth,
            ml_flags: flags,
            ml_doc: doc.as_ptr(),
        }
    };
    [
        method(
            c"send",
            ffi::PyMethodDefPointer { PyCFunction: send },
            ffi::METH_O,
            c"Continue the operation.",
        ),
        method(
            c"throw",
            ffi::PyMethodDefPointer { PyCFunction: throw },
            ffi::METH_VARARGS,
            c"End the operation, and raise an exception.",
        ),
        method(
            c"close",
            ffi::PyMethodDefPointer { PyCFunction: close },
            ffi::METH_NOARGS,
            c"End the operation.",
        ),
        ffi::PyMethodDef::zeroed(),
    ]
}

fn make(py: Python<'_>) -> PyResult<Py<PyType>> {
    let methods = Box::new(methods());
    let slot = |slot, pfunc: *const ()| ffi::PyType_Slot {
        slot,
        pfunc: pfunc.cast_mut().cast(),
    };
    let doc = c"The result of an operation of a file, to be awaited once.";
    let mut slots = [
        slot(ffi::Py_tp_doc, doc.as_ptr().cast()),
        slot(ffi::Py_tp_dealloc, dealloc as *const ()),
        slot(ffi::Py_tp_traverse, traverse as *const ()),
        slot(ffi::Py_tp_clear, clear as *const ()),
        slot(ffi::Py_tp_iter, myself as *const ()),
        slot(ffi::Py_tp_iternext, next as *const ()),
        slot(ffi::Py_am_await, myself as *const ()),
        slot(ffi::Py_am_send, am_send as *const ()),
        slot(ffi::Py_tp_methods, Box::leak(methods).as_ptr().cast()),
        ffi::PyType_Slot::default(),
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"nowait.asyncio_files.Awaitable".as_ptr(),
        basicsize: size_of::<Object>() as c_int,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT
            | ffi::Py_TPFLAGS_HAVE_GC
            | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION) as u32,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the names and the methods live forever, and each function has the signature of its
    // slot. The result is an owned reference to a type, or null with an exception set.
    unsafe {
        let class = Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec))?;
        Ok(class.cast_into_unchecked::<PyType>().unbind())
    }
}

/// Calls `body`, and makes an exception of a panic: it must not unwind through the interpreter.
fn guarded<T>(body: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    let _guard = hang::guard();
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic: Box<dyn Any + Send>| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Err(PySystemError::new_err(format!(
            "nowait has panicked: {}",
            text.unwrap_or_default()
        )))
    })
}

/// # Safety
/// `this` is an awaitable, and the thread is attached.
unsafe fn step(this: *mut ffi::PyObject) -> PyResult<Step> {
    // SAFETY: of the caller. The references live for this call alone.
    let (py, operation) = unsafe {
        (
            Python::assume_attached(),
            &(*this.cast::<Object>()).operation,
        )
    };
    guarded(|| {
        let (next, result) = operation.replace(Operation::Running).step(py);
        operation.set(next);
        result
    })
}

/// # Safety
/// As [`step`].
unsafe fn end(this: *mut ffi::PyObject) -> PyResult<()> {
    // SAFETY: of the caller.
    let operation = unsafe { &(*this.cast::<Object>()).operation };
    guarded(|| {
        match operation.replace(Operation::Done) {
            Operation::Done => {}
            // PyO3 drops objects at once only in a thread that it has attached. At the end of the
            // interpreter's shutdown PyO3 attaches no thread, and the objects are not dropped.
            begun => {
                Python::try_attach(|_| drop(begun));
            }
        }
        Ok(())
    })
}

unsafe extern "C" fn am_send(
    this: *mut ffi::PyObject,
    _value: *mut ffi::PyObject,
    result: *mut *mut ffi::PyObject,
) -> ffi::PySendResult {
    // SAFETY: the interpreter calls the slot of an awaitable while the thread is attached, and
    // `result` is valid.
    unsafe {
        let (object, kind) = match step(this) {
            Ok(Step::Return(object)) => (object.into_ptr(), ffi::PySendResult::PYGEN_RETURN),
            Ok(Step::Yield(object)) => (object.into_ptr(), ffi::PySendResult::PYGEN_NEXT),
            Err(error) => {
                error.restore(Python::assume_attached());
                (ptr::null_mut(), ffi::PySendResult::PYGEN_ERROR)
            }
        };
        *result = object;
        kind
    }
}

unsafe extern "C" fn next(this: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: as for `am_send`.
    unsafe {
        let error = match step(this) {
            Ok(Step::Yield(object)) => return object.into_ptr(),
            // A value that is a tuple must not become the arguments of the exception.
            Ok(Step::Return(value)) => PyStopIteration::new_err((value,)),
            Err(error) => error,
        };
        error.restore(Python::assume_attached());
        ptr::null_mut()
    }
}

unsafe extern "C" fn send(
    this: *mut ffi::PyObject,
    _value: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as for `am_send`.
    unsafe { next(this) }
}

unsafe extern "C" fn throw(
    this: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as for `am_send`. The arguments are a tuple, which the caller owns.
    unsafe {
        let py = Python::assume_attached();
        let arguments = Bound::from_borrowed_ptr(py, arguments).cast_into_unchecked::<PyTuple>();
        let error = match guarded(|| exception(&arguments)) {
            Ok(thrown) => match end(this) {
                Ok(()) => thrown,
                Err(error) => error,
            },
            Err(error) => error,
        };
        error.restore(py);
        ptr::null_mut()
    }
}

unsafe extern "C" fn close(this: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: as for `am_send`.
    unsafe {
        let py = Python::assume_attached();
        match end(this) {
            Ok(()) => py.None().into_ptr(),
            Err(error) => {
                error.restore(py);
                ptr::null_mut()
            }
        }
    }
}

/// The exception that throw() names: throw(value) or throw(type[, value[, traceback]]).
fn exception(arguments: &Bound<'_, PyTuple>) -> PyResult<PyErr> {
    let py = arguments.py();
    let wrong =
        || PyTypeError::new_err("throw() takes an exception, or its type, value and traceback");
    let (first, rest) = match arguments.len() {
        1..=3 => (arguments.get_item(0)?, arguments.get_slice(1, 3)),
        _ => return Err(wrong()),
    };
    let value = rest.get_item(0).ok().filter(|value| !value.is_none());
    let base = py.get_type::<pyo3::exceptions::PyBaseException>();
    let exception = match first.cast::<PyType>() {
        Err(_) => first.clone(),
        Ok(class) => match value {
            Some(value) if value.is_instance(class)? => value,
            Some(value) => class.call1((value,))?,
            None => class.call0()?,
        },
    };
    if !exception.is_instance(&base)? {
        return Err(wrong());
    }
    if let Ok(traceback) = rest.get_item(1)
        && !traceback.is_none()
    {
        exception.setattr("__traceback__", traceback)?;
    }
    Ok(PyErr::from_value(exception))
}

unsafe extern "C" fn myself(this: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls the slot of an object while the thread is attached.
    unsafe { ffi::Py_NewRef(this) }
}

unsafe extern "C" fn dealloc(this: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls it once, without other references to the object. The type was
    // counted when the object was allocated.
    unsafe {
        ffi::PyObject_GC_UnTrack(this.cast());
        // Nothing else is in the memory that has to be dropped.
        let _ = end(this);
        let class = ffi::Py_TYPE(this);
        ffi::PyObject_GC_Del(this.cast());
        ffi::Py_DECREF(class.cast());
    }
}

unsafe extern "C" fn traverse(
    this: *mut ffi::PyObject,
    visit: ffi::visitproc,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: no step runs during a traversal. The type is visited as each heap type must be
    // (Python 3.9).
    unsafe {
        let class = visit(ffi::Py_TYPE(this).cast(), argument);
        if class != 0 {
            return class;
        }
        let operation = &*(*this.cast::<Object>()).operation.as_ptr();
        let references = operation.references(Python::assume_attached());
        for object in references.as_flattened().iter().flatten() {
            let visited = visit(object.as_ptr(), argument);
            if visited != 0 {
                return visited;
            }
        }
    }
    0
}

unsafe extern "C" fn clear(this: *mut ffi::PyObject) -> c_int {
    // SAFETY: as for `am_send`.
    let _ = unsafe { end(this) };
    0
}
