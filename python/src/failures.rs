//! Collects the failures of single files. The failure of a file that an argument names may end the call.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nowait_page_cache::{Reporter, Stop};
use pyo3::prelude::*;
use rustix::io::Errno;

use crate::error::os_error;
use crate::paths::{Named, text};

/// The maximum number of collected failures. The rest is counted.
const MAX_KEPT: usize = 1000;

/// The failures of one call.
pub struct Failures {
    /// The indices of the arguments.
    named: HashMap<PathBuf, usize>,
    stop: Option<Stop>,
    found: Mutex<Found>,
}

#[derive(Clone, Default)]
struct Found {
    /// The failure that ends the call.
    end: Option<Failure>,
    kept: Vec<Failure>,
    count: u64,
}

/// A file that was not processed.
#[derive(Clone)]
struct Failure {
    path: PathBuf,
    /// The index of the argument that names it.
    argument: Option<usize>,
    errno: Errno,
    /// `None` for the text of the errno.
    text: Option<String>,
}

impl Failures {
    /// No failures so far. The failure of an argument requests the stop, and ends the call.
    pub fn new(arguments: &[Named], stop: Option<&Stop>) -> Failures {
        let named = arguments.iter().enumerate();
        Failures {
            named: named.map(|(i, named)| (named.path.clone(), i)).collect(),
            stop: stop.cloned(),
            found: Mutex::default(),
        }
    }

    /// The number of collected failures, and the first [`MAX_KEPT`] of them as exceptions. `argument`
    /// returns the object of an argument.
    ///
    /// # Errors
    /// The failure that ends the call.
    pub fn finish(
        &self,
        py: Python<'_>,
        argument: &dyn Fn(usize) -> Py<PyAny>,
    ) -> PyResult<(u64, Vec<Py<PyAny>>)> {
        // An exception may run code of the program, which must not wait for the lock.
        let Found { end, kept, count } = self.lock().clone();
        if let Some(end) = end {
            return Err(end.error(py, argument)?);
        }
        let errors = kept.into_iter().map(|failure| {
            let error = failure.error(py, argument)?;
            Ok(error.into_value(py).into_any())
        });
        Ok((count, errors.collect::<PyResult<_>>()?))
    }

    /// The state is consistent after each change.
    fn lock(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Failure {
    fn error(&self, py: Python<'_>, argument: &dyn Fn(usize) -> Py<PyAny>) -> PyResult<PyErr> {
        let filename = match self.argument {
            Some(i) => argument(i).into_bound(py),
            None => text(py, &self.path)?,
        };
        Ok(os_error(py, self.errno, self.text.clone(), &filename))
    }
}

impl Reporter for Failures {
    fn failure(&self, path: &Path, errno: Option<Errno>, why: &dyn Display) {
        let why = why.to_string();
        let is_errno = errno.is_some_and(|errno| {
            why == errno.to_string() || why == std::io::Error::from(errno).to_string()
        });
        let failure = Failure {
            path: path.to_owned(),
            argument: self.named.get(path).copied(),
            errno: errno.unwrap_or(Errno::INVAL),
            text: Some(why).filter(|_| !is_errno),
        };
        let mut found = self.lock();
        if let (Some(stop), Some(_)) = (&self.stop, failure.argument) {
            found.end.get_or_insert(failure);
            stop.request();
            return;
        }
        found.count += 1;
        if found.kept.len() < MAX_KEPT {
            found.kept.push(failure);
        }
    }

    /// Files that vanish, and pseudo filesystems that are not entered, are no failures.
    fn note(&self, _: &Path, _: &dyn Display) {}
}
