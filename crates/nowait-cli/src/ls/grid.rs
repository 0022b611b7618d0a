//! Names in columns, each as wide as the longest name in it, read from top to bottom.

use std::iter;

/// Blanks between two columns.
const GAP: usize = 2;

/// How cells of these widths go on a line.
#[derive(Debug, PartialEq, Eq)]
pub struct Grid {
    pub rows: usize,
    /// Of each column, without the blanks behind it.
    pub widths: Vec<usize>,
}

impl Grid {
    /// With as many columns as fit.
    pub fn of(cells: &[usize], width: usize) -> Grid {
        let narrowest = cells.iter().min().map_or(1, |least| least + GAP);
        let most = (width + GAP) / narrowest.max(1);
        let mut fitting = (2..=most.min(cells.len())).rev().filter_map(|columns| {
            let rows = cells.len().div_ceil(columns);
            let widths: Vec<_> = cells.chunks(rows).map(widest).collect();
            let all = widths.iter().sum::<usize>() + GAP * (widths.len() - 1);
            (all <= width).then_some(Grid { rows, widths })
        });
        fitting.next().unwrap_or_else(|| Grid {
            rows: cells.len(),
            widths: vec![widest(cells)],
        })
    }

    /// The cells of one line, and how many blanks come behind each.
    pub fn line<'a>(
        &'a self,
        row: usize,
        cells: &'a [usize],
    ) -> impl Iterator<Item = (usize, usize)> + 'a {
        let columns = self.widths.iter().enumerate();
        columns.map_while(move |(column, width)| {
            let at = column * self.rows + row;
            let blanks = match at + self.rows < cells.len() {
                true => width + GAP - cells[at],
                false => 0,
            };
            (at < cells.len()).then_some((at, blanks))
        })
    }
}

fn widest(cells: &[usize]) -> usize {
    cells.iter().copied().max().unwrap_or(0)
}

/// So many blanks.
pub fn blanks(count: usize) -> impl Iterator<Item = &'static [u8]> {
    iter::repeat_n(&b" "[..], count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(cells: &[usize], width: usize) -> Vec<String> {
        let grid = Grid::of(cells, width);
        let line = |row| {
            grid.line(row, cells)
                .map(|(at, blanks)| "x".repeat(cells[at]) + &" ".repeat(blanks))
                .collect()
        };
        (0..grid.rows).map(line).collect()
    }

    #[test]
    fn as_many_columns_as_fit_are_filled_from_top_to_bottom() {
        assert_eq!(drawn(&[1, 2, 3], 80), ["x  xx  xxx"]);
        assert_eq!(drawn(&[1, 2, 3], 10), ["x  xx  xxx"]);
        assert_eq!(drawn(&[1, 2, 3], 9), ["x   xxx", "xx"]);
        assert_eq!(drawn(&[1, 2, 3], 1), ["x", "xx", "xxx"]);
        assert_eq!(drawn(&[], 80), Vec::<String>::new());
        for count in 0..50 {
            for width in 0..40 {
                let cells: Vec<_> = (0..count).map(|i| i * 7 % 5).collect();
                let lines = drawn(&cells, width);
                let all: usize = lines.iter().map(|l| l.matches('x').count()).sum();
                assert_eq!(all, cells.iter().sum::<usize>());
                let long = |line: &String| line.len() > width.max(4);
                assert!(!lines.iter().any(long), "{count} {width}");
            }
        }
    }
}
