//! Failures of single files. The failure of a file that an argument names ends the call. Those of
//! files below a directory are collected.

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
    stop: Stop,
    found: Mutex<Found>,
}

#[derive(Clone, Default)]
struct Found {
    of_argument: Option<(usize, Failure)>,
    below: Vec<Failure>,
    count: u64,
}

/// A file that was not processed.
#[derive(Clone)]
struct Failure {
    path: PathBuf,
    errno: Errno,
    /// `None` for the text of the errno.
    text: Option<String>,
}

impl Failures {
    /// No failures so far. The failure of an argument requests the stop.
    pub fn new(arguments: &[Named], stop: &Stop) -> Failures {
        let named = arguments.iter().enumerate();
        Failures {
            named: named.map(|(i, named)| (named.path.clone(), i)).collect(),
            stop: stop.clone(),
            found: Mutex::default(),
        }
    }

    /// The number of failures below directories, and the first [`MAX_KEPT`] of them as exceptions.
    /// `argument` returns the object of an argument.
    ///
    /// # Errors
    /// The failure of an argument.
    pub fn finish(
        &self,
        py: Python<'_>,
        argument: &dyn Fn(usize) -> Py<PyAny>,
    ) -> PyResult<(u64, Vec<Py<PyAny>>)> {
        let of_argument = self.lock().of_argument.clone();
        if let Some((i, failure)) = of_argument {
            return Err(failure.error(py, argument(i).bind(py)));
        }
        self.errors(py, argument)
    }

    /// The same, with the failure of an argument as the first exception.
    pub fn errors(
        &self,
        py: Python<'_>,
        argument: &dyn Fn(usize) -> Py<PyAny>,
    ) -> PyResult<(u64, Vec<Py<PyAny>>)> {
        // An exception may run code of the program, which must not wait for the lock.
        let Found {
            of_argument,
            below,
            count,
        } = self.lock().clone();
        let failed = count + u64::from(of_argument.is_some());
        let of_argument = of_argument.into_iter().map(|(i, failure)| {
            let error = failure.error(py, argument(i).bind(py));
            Ok(error.into_value(py).into_any())
        });
        let below = below.into_iter().map(|failure| {
            let error = failure.error(py, &text(py, &failure.path)?);
            Ok(error.into_value(py).into_any())
        });
        let errors = of_argument.chain(below).collect::<PyResult<Vec<_>>>()?;
        Ok((failed, errors))
    }

    /// The state is consistent after each change.
    fn lock(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Failure {
    fn error(&self, py: Python<'_>, filename: &Bound<'_, PyAny>) -> PyErr {
        os_error(py, self.errno, self.text.clone(), filename)
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
            errno: errno.unwrap_or(Errno::INVAL),
            text: Some(why).filter(|_| !is_errno),
        };
        let mut found = self.lock();
        if let Some(&i) = self.named.get(path) {
            found.of_argument.get_or_insert((i, failure));
            self.stop.request();
            return;
        }
        found.count += 1;
        if found.below.len() < MAX_KEPT {
            found.below.push(failure);
        }
    }

    /// Files that vanish, and pseudo filesystems that are not entered, are no failures.
    fn note(&self, _: &Path, _: &dyn Display) {}
}
