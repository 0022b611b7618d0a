//! Arguments that are described to the parser only when their verb is used. Describing the
//! arguments of all verbs takes as long as listing a small directory.

use std::ops::Deref;

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};

use crate::help::in_paragraphs;

/// A verb's arguments. The one-line description for the list of verbs stands at the verb's variant,
/// because the list is printed before these arguments are described.
#[derive(Clone, Debug)]
pub struct Deferred<A>(A);

impl<A> Deref for Deferred<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.0
    }
}

impl<A: FromArgMatches> FromArgMatches for Deferred<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Deferred<A>, Error> {
        A::from_arg_matches(matches).map(Deferred)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<A: Args> Args for Deferred<A> {
    fn augment_args(command: Command) -> Command {
        command.defer(|command| in_paragraphs(A::augment_args(command)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        command.defer(|command| in_paragraphs(A::augment_args_for_update(command)))
    }
}
