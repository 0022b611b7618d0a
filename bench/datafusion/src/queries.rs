//! The queries of TPC-H, with the parameters of the specification's validation.

use tpchgen::q_and_a::queries::query;

/// The parameters of a query, in order.
fn parameters(number: i32) -> &'static [&'static str] {
    match number {
        1 => &["90"],
        2 => &["15", "BRASS", "EUROPE"],
        3 => &["BUILDING", "1995-03-15"],
        4 => &["1993-07-01"],
        5 => &["ASIA", "1994-01-01"],
        6 => &["1994-01-01", "0.06", "24"],
        7 => &["FRANCE", "GERMANY"],
        8 => &["BRAZIL", "AMERICA", "ECONOMY ANODIZED STEEL"],
        9 => &["green"],
        10 => &["1993-10-01"],
        11 => &["GERMANY", "0.0001"],
        12 => &["MAIL", "SHIP", "1994-01-01"],
        13 => &["special", "requests"],
        14 => &["1995-09-01"],
        15 => &["1996-01-01"],
        16 => &[
            "Brand#45",
            "MEDIUM POLISHED",
            "49",
            "14",
            "23",
            "45",
            "19",
            "3",
            "36",
            "9",
        ],
        17 => &["Brand#23", "MED BOX"],
        18 => &["300"],
        19 => &["Brand#12", "Brand#23", "Brand#34", "1", "10", "20"],
        20 => &["forest", "1994-01-01", "CANADA"],
        21 => &["SAUDI ARABIA"],
        _ => &["13", "31", "23", "29", "30", "18", "17"],
    }
}

/// The statements of a query. One of them returns rows.
pub fn statements(number: i32) -> Vec<String> {
    // The views of query 15 have a number in their name. DataFusion has no precision of intervals.
    let mut text = query(number).unwrap_or_default().replace(":s", "0");
    text = text.replace(" day (3)", " day");
    // :10 before :1.
    for (i, value) in parameters(number).iter().enumerate().rev() {
        text = text.replace(&format!(":{}", i + 1), value);
    }
    let statements = text.split(';').map(str::trim);
    let statements = statements.filter(|statement| !statement.is_empty());
    statements.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_has_its_value() {
        for number in 1..=22 {
            let statements = statements(number);
            assert_eq!(
                statements.len(),
                if number == 15 { 3 } else { 1 },
                "{number}"
            );
            for statement in statements {
                assert!(!statement.contains(':'), "{statement}");
            }
        }
    }
}
