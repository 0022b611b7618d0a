//! The program, which this process executes.

use std::convert::Infallible;
use std::ffi::{CString, NulError, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use nix::errno::Errno;
use nix::unistd::execvpe;

use super::inherited;
use crate::name::shown;
use crate::problem::Problem;

/// A program with its arguments, and the variables that are added to its environment.
pub struct Program<'a> {
    pub command: &'a [OsString],
    pub variables: Vec<(&'static str, OsString)>,
}

impl Program<'_> {
    /// Executes the program, as execvp(3) does, with the signal actions and the open descriptors that this process was
    /// started with. Returns only if that fails.
    pub fn execute(&self) -> Problem {
        let name = self
            .command
            .first()
            .map_or(OsStr::new(""), OsString::as_os_str);
        let arguments = self
            .command
            .iter()
            .map(|word| CString::new(word.as_bytes()));
        let arguments = arguments
            .collect::<Result<Vec<_>, _>>()
            .map_err(no_argument);
        let executed = arguments.and_then(|arguments| {
            let environment = self.environment()?;
            let file = arguments.first().ok_or(Errno::ENOENT)?;
            inherited::restore();
            let failed: nix::Result<Infallible> = execvpe(file, &arguments, &environment);
            failed
        });
        let Err(error) = executed;
        let (code, why) = match error {
            Errno::ENOENT => (127, "not found".to_owned()),
            _ => (126, std::io::Error::from(error).to_string()),
        };
        Problem::NotRun(code, format!("{}: {why}", shown(&name)))
    }

    /// The environment of this process, with the variables of the program.
    fn environment(&self) -> Result<Vec<CString>, Errno> {
        let is_set = |name: &OsString| self.variables.iter().any(|(changed, _)| name == changed);
        let kept = std::env::vars_os().filter(|(name, _)| !is_set(name));
        let set = self
            .variables
            .iter()
            .map(|(name, value)| (OsString::from(name), value.clone()));
        kept.chain(set)
            .map(|(mut variable, value)| {
                variable.push("=");
                variable.push(value);
                CString::new(variable.into_vec())
            })
            .collect::<Result<_, _>>()
            .map_err(no_argument)
    }
}

/// The error for a zero byte in an argument or the environment.
fn no_argument(_: NulError) -> Errno {
    Errno::EINVAL
}
