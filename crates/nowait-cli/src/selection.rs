//! Lists of names in options, such as `--fields path,size`.

/// Parses names that are separated by commas, in upper or lower case. `what` is the noun for
/// messages.
pub fn parse<T: Copy>(list: &str, what: &str, known: &[(&str, T)]) -> Result<Vec<T>, String> {
    let select = |name: &str| {
        let name = name.trim();
        let found = known
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
            let names = names.join(", ");
            format!("there is no {what} `{name}`; the {what}s are {names}")
        })
    };
    list.split(',').map(select).collect()
}
