//! Curves of cost over hit rate, and the rates at which two of them cross.

/// Costs at rising hit rates, in percent.
pub type Curve = Vec<(f64, f64)>;

/// Costs that differ by less than this share count as equal: otherwise the curves of two ways of
/// equal cost would cross at every second point.
const SAME: f64 = 0.05;

/// The rates at which two curves cross: by linear interpolation between the rates that both have
/// and at which they differ.
pub fn crossings(one: &Curve, other: &Curve) -> Vec<f64> {
    let gaps: Vec<(f64, f64)> = one
        .iter()
        .filter_map(|&(rate, cost)| {
            let &(_, beside) = other.iter().find(|(at, _)| *at == rate)?;
            let gap = cost - beside;
            // A point at which the curves touch is left out: its neighbours show if they cross.
            (gap.abs() > SAME * cost.min(beside)).then_some((rate, gap))
        })
        .collect();
    gaps.windows(2)
        .filter(|pair| pair[0].1.signum() != pair[1].1.signum())
        .map(|pair| {
            let ((from, a), (to, b)) = (pair[0], pair[1]);
            from + (to - from) * a / (a - b)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_cross_where_they_meet() {
        let falling: Curve = vec![(0.0, 30.0), (50.0, 20.0), (100.0, 0.0)];
        let flat: Curve = vec![(0.0, 10.0), (50.0, 10.0), (100.0, 10.0)];
        assert_eq!(crossings(&falling, &flat), [75.0]);
        assert_eq!(crossings(&flat, &falling), [75.0]);
        assert_eq!(crossings(&flat, &flat), Vec::<f64>::new());
        // A rate that one curve lacks is left out, and so is one at which they touch.
        let touching: Curve = vec![(0.0, 20.0), (50.0, 10.0), (100.0, 0.0)];
        assert_eq!(crossings(&touching, &flat), [50.0]);
        // Two ways of equal cost, with the noise of a measurement.
        let trembling: Curve = vec![(0.0, 10.4), (50.0, 9.7), (100.0, 10.2)];
        assert_eq!(crossings(&trembling, &flat), Vec::<f64>::new());
        assert_eq!(crossings(&falling[..1].to_vec(), &flat), Vec::<f64>::new());
    }
}
