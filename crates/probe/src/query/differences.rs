//! How far servers are apart, from exchanges with them at the same time. Pure. The asking clock
//! falls out of a difference, so that this is known even where that clock is wrong.

use horolog_record::{Difference, Sample};

use super::exchange::gained_ns;
use super::figures::is_impossible;

/// All pairs of servers that have exchanges in common.
pub(crate) fn differences(servers: &[&[Sample]]) -> Vec<Difference> {
    let pairs = (0..servers.len()).flat_map(|a| (a + 1..servers.len()).map(move |b| (a, b)));
    pairs.filter_map(|(a, b)| difference([a, b], servers[a], servers[b])).collect()
}

fn difference([first, second]: [usize; 2], a: &[Sample], b: &[Sample]) -> Option<Difference> {
    let pairs = in_common(a, b);
    let apart = |(a, b): &(&Sample, &Sample)| a.offset_ns.saturating_sub(b.offset_ns);
    let best = pairs.iter().min_by_key(|(a, b)| bound_ns(a, b))?;
    let (offset_ns, bound) = (apart(best), bound_ns(best.0, best.1));
    let mean_ns = pairs.iter().map(|pair| apart(pair) as f64).sum::<f64>() / pairs.len() as f64;
    Some(Difference {
        first,
        second,
        pairs: pairs.len() as u64,
        offset_ns,
        bound_ns: bound,
        mean_ns,
        contradiction: offset_ns.unsigned_abs() > bound,
    })
}

/// Both bounds, and what the asking clock may have gained between the two exchanges.
fn bound_ns(a: &Sample, b: &Sample) -> u64 {
    let between = gained_ns(a.t1_ns.abs_diff(b.t1_ns));
    a.bound_ns().saturating_add(b.bound_ns()).saturating_add(between)
}

/// Exchanges at the same place of the time grid; both lists are in its order. Those that took less
/// than no time say nothing, least of all how far they may be wrong.
fn in_common<'a>(a: &'a [Sample], b: &'a [Sample]) -> Vec<(&'a Sample, &'a Sample)> {
    let mut rest = b.iter().filter(|sample| !is_impossible(sample)).peekable();
    a.iter()
        .filter(|sample| !is_impossible(sample))
        .filter_map(|one| {
            while rest.next_if(|other| other.sequence < one.sequence).is_some() {}
            rest.next_if(|other| other.sequence == one.sequence).map(|other| (one, other))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::sample;
    use super::*;

    #[test]
    fn the_tightest_pair_tells_the_difference() {
        let a = [sample(0, 1_000, 400), sample(1, 1_010, 100), sample(3, 990, 100)];
        let b = [sample(1, 250, 100), sample(2, 0, 10), sample(3, 260, 300)];
        let found = differences(&[&a, &b]);
        assert_eq!(found.len(), 1);
        let found = found[0];
        assert_eq!((found.first, found.second, found.pairs), (0, 1, 2));
        // Two halves of 100 ns and twice 10 ns of dispersion.
        assert_eq!((found.offset_ns, found.bound_ns), (760, 120));
        assert!((found.mean_ns - 745.0).abs() < 1e-9);
        assert!(found.contradiction, "both cannot be right");
    }

    #[test]
    fn what_the_bounds_allow_is_no_contradiction() {
        let (a, b) = ([sample(0, 100, 200)], [sample(0, 0, 200)]);
        assert!(!differences(&[&a, &b])[0].contradiction);
        assert!(differences(&[&a, &[]]).is_empty());
        assert_eq!(differences(&[&a, &b, &a]).len(), 3);
    }

    #[test]
    fn what_took_less_than_no_time_says_nothing() {
        let impossible = sample(1, 5_000_000, -1_000_000);
        let a = [sample(0, 100, 200), impossible];
        let b = [sample(0, 0, 200), sample(1, 0, 200)];
        let found = differences(&[&a, &b])[0];
        assert_eq!((found.pairs, found.contradiction), (1, false));
        assert!(differences(&[&[impossible], &b[1..]]).is_empty());
    }

    #[test]
    fn the_time_between_two_exchanges_widens_the_bound() {
        let (a, mut b) = (sample(0, 0, 100), sample(0, 0, 100));
        b.t1_ns += 10_000_000;
        // 15 ppm of 10 ms.
        assert_eq!(bound_ns(&a, &b), 60 + 60 + 150);
        b.t1_ns = a.t1_ns + 999_999;
        assert_eq!(bound_ns(&a, &b), 60 + 60 + 15, "rounded up");
    }
}
