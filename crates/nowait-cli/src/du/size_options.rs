//! The options for sizes: which size of a file counts, and the unit in which it is printed.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

use super::unit::Unit;

/// The size options of a command line. As in du(1), the last of `-b`, `-h`, `-k` and `-m` sets the
/// unit, and `-b` counts apparent sizes also if another option sets the unit. An override of clap
/// would remove `-b` altogether.
#[derive(Clone, Copy, Debug)]
pub struct SizeOptions {
    /// The unit, if an option sets it.
    pub unit: Option<Unit>,
    /// True if file sizes count instead of allocated space.
    pub apparent: bool,
}

const BYTES: &str = "bytes";
const APPARENT_SIZE: &str = "apparent_size";

/// The options that set the unit.
const UNITS: [(&str, Unit); 4] = [
    ("human_readable", Unit::Human),
    (BYTES, Unit::Bytes(1)),
    ("kib", Unit::Bytes(1 << 10)),
    ("mib", Unit::Bytes(1 << 20)),
];

impl Args for SizeOptions {
    fn augment_args(command: Command) -> Command {
        let flag = |id, help| Arg::new(id).action(ArgAction::SetTrue).help(help);
        command.args([
            flag("human_readable", "Print sizes like 1.1K, 234M and 2.0G")
                .short('h')
                .long("human-readable"),
            flag(BYTES, "Print apparent sizes in bytes")
                .short('b')
                .long("bytes"),
            flag("kib", "Print sizes in KiB").short('k'),
            flag("mib", "Print sizes in MiB").short('m'),
            flag(APPARENT_SIZE, "Count file sizes instead of allocated space")
                .long("apparent-size"),
        ])
    }

    fn augment_args_for_update(command: Command) -> Command {
        SizeOptions::augment_args(command)
    }
}

impl FromArgMatches for SizeOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SizeOptions, Error> {
        let position = |id| matches.indices_of(id).and_then(Iterator::max);
        let given = UNITS.iter().filter(|(id, _)| matches.get_flag(id));
        let last = given.max_by_key(|(id, _)| position(id));
        Ok(SizeOptions {
            unit: last.map(|(_, unit)| *unit),
            apparent: matches.get_flag(APPARENT_SIZE) || matches.get_flag(BYTES),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = SizeOptions::from_arg_matches(matches)?;
        Ok(())
    }
}
