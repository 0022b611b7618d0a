//! Draws a file's residency as a strip that is as wide as the terminal.

use nowait::residency::PageMap;

use crate::terminal::Terminal;

/// The characters for a cached share of: none, less than a third, less than two thirds, less than
/// all, all.
const BLOCKS: [char; 5] = ['·', '░', '▒', '▓', '█'];
const ASCII: [char; 5] = ['.', '-', '=', '+', '#'];

const DIM: &str = "2";
const YELLOW: &str = "33";
const GREEN: &str = "32";
const COLOURS: [&str; 5] = [DIM, YELLOW, YELLOW, YELLOW, GREEN];

/// Returns the strip without a line break.
pub fn draw(map: &PageMap, terminal: Terminal) -> String {
    // The brackets take two columns.
    let levels = levels(map, terminal.width.max(3) - 2);
    let glyphs = if terminal.unicode { BLOCKS } else { ASCII };
    let mut strip = String::from("[");
    let mut colour = "";
    for level in levels {
        if terminal.colour && colour != COLOURS[level] {
            colour = COLOURS[level];
            strip.push_str(&format!("\x1b[0;{colour}m"));
        }
        strip.push(glyphs[level]);
    }
    if !colour.is_empty() {
        strip.push_str("\x1b[0m");
    }
    strip.push(']');
    strip
}

/// The levels of the file's parts: the file is divided into `cells` equal parts, and the level of a
/// part is an index of [`BLOCKS`], 0 if no byte of it is cached and 4 if all are.
fn levels(map: &PageMap, cells: usize) -> Vec<usize> {
    // A unit is chosen so that a byte has as many units as there are cells, and a cell has as many
    // units as the file has bytes. All boundaries are then whole numbers.
    let per_byte = cells as u128;
    let per_cell = u128::from(map.range().end);
    let mut covered = vec![0; cells];
    for range in map.resident() {
        let (mut from, to) = (
            u128::from(range.start) * per_byte,
            u128::from(range.end) * per_byte,
        );
        while from < to {
            let cell = from / per_cell;
            let end = to.min((cell + 1) * per_cell);
            covered[cell as usize] += end - from;
            from = end;
        }
    }
    let level = |covered| match covered {
        0 => 0,
        some if some == per_cell => 4,
        some => 1 + (some * 3 / per_cell) as usize,
    };
    covered.into_iter().map(level).collect()
}
