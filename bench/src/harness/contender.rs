//! Contenders, and their availability.

use std::process::{Command, Stdio};

use clap::ValueEnum;
use nowait::engine::Backend;

/// A value of an option.
pub trait Word: ValueEnum {
    /// The name on the command line and in the results.
    fn word(&self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl<N: ValueEnum> Word for N {}

/// The names of some values.
pub fn words<N: ValueEnum>(values: &[N]) -> Vec<String> {
    values.iter().map(Word::word).collect()
}

/// The option of areas whose contenders are named.
#[derive(Clone, Debug, clap::Args)]
pub struct Contenders<N: ValueEnum + Send + Sync + 'static> {
    /// The contenders [default: all that are available]
    #[arg(
        id = "contenders",
        long,
        value_enum,
        value_name = "A,B,…",
        value_delimiter = ','
    )]
    pub names: Vec<N>,
}

/// A contender that is a value of an option.
pub trait Named: ValueEnum {
    /// True for nowait.
    fn is_ours(&self) -> bool;
}

/// A contender.
pub trait Contender {
    /// The name in the results.
    fn name(&self) -> String;

    /// True for nowait.
    fn is_ours(&self) -> bool;
}

impl<N: Named> Contender for N {
    fn name(&self) -> String {
        self.word()
    }

    fn is_ours(&self) -> bool {
        Named::is_ours(self)
    }
}

/// A list without repeated items.
pub fn once_each<T: Copy + PartialEq>(list: &[T]) -> Vec<T> {
    let mut once = Vec::new();
    for item in list {
        if !once.contains(item) {
            once.push(*item);
        }
    }
    once
}

/// The availability of a contender.
pub enum Fit {
    Yes,
    /// Available, with a note for the report.
    With(String),
    /// Not available, with the reason and a remedy.
    No(String),
}

impl Fit {
    /// The answer if the engine of a contender cannot be built.
    pub fn no_engine(name: &str, error: &nowait::Error) -> Fit {
        Fit::No(format!("no engine for `{name}` here: {error}"))
    }

    /// The answer if an engine has this backend. `why` is the reason for it.
    pub fn on(name: &str, wanted: Option<Backend>, backend: Backend, why: &str) -> Fit {
        match wanted.is_none_or(|wanted| wanted == backend) {
            true => Fit::Yes,
            false => Fit::With(format!("`{name}` ran on {backend}: {why}")),
        }
    }
}

/// Returns if a program is installed. `package` is the Debian package that has it.
pub fn installed(program: &str, package: &str) -> Fit {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(_) => Fit::Yes,
        Err(_) => Fit::No(format!(
            "{program} is not installed: install the package `{package}` (apt-get install {package}), \
             or leave it out"
        )),
    }
}
