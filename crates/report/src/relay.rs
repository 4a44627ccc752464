//! Result of `bench relay` as table cells and sentences, shared by the terminal and the HTML
//! report: copy rates by packet size and number of children, cost and added delay of a copy, and
//! the comparison with published values.

use horolog_record::{
    BenchRelayResult, Distribution, FLAT_RATIO_MAX, RelayBaseline, RelayConfigurationResult,
    RelayEngine, RelayScaling,
};

use crate::units::{ABSENT, amount, full_count, human_ns, human_rate, mean_ns, signed_ns, times};

/// Lowest and highest mean gain over all packet sizes, in percent, as published by Cao, Su and Lu,
/// "A Mechanism Improving the Forwarding Throughput of Application Layer Multicast", Journal of
/// National University of Defense Technology 30 (2008), 2, 51-55.
const PUBLISHED_GAIN: (f64, f64) = (40.49, 132.45);

/// Definitions of the metrics.
pub(crate) const DEFINITION: &str = "Totals: copies per second received by all children, at the \
     highest rate without loss. Added: difference between the percentiles of the first copy and \
     those of a packet sent at the same rate without a relay. Last: from sending at the source to \
     arrival of the last copy. Both at half that rate. CPU: CPU time of the host per copy without \
     that of the source, and of the relay alone (also without the receivers), at the same rate, \
     including interrupts.";

/// Returns titles and widths of the columns of a packet size's totals, without the number of
/// children.
pub(crate) fn total_columns(result: &BenchRelayResult) -> Vec<(&'static str, usize)> {
    let engines = result.engines().into_iter().map(|engine| (engine.name(), 11));
    engines
        .chain(is_compared(result).then_some([("gain", 8), ("ratio", 6)]).into_iter().flatten())
        .collect()
}

/// Returns true if both sides of a gain were measured.
fn is_compared(result: &BenchRelayResult) -> bool {
    let engines = result.engines();
    [RelayEngine::Send, RelayEngine::Xdp].iter().all(|engine| engines.contains(engine))
}

/// Returns the totals of a size: a row for each number of children.
pub(crate) fn totals(result: &BenchRelayResult, size: usize) -> Vec<(String, Vec<String>)> {
    let row = |children: usize| {
        let cell = |engine| total(result.cell(size, children, engine));
        let ratio = result.xdp_to_send_ratio(size, children).and_then(amount);
        let gain = ratio.map_or_else(absent, |ratio| signed_percent((ratio - 1.0) * 100.0));
        let ratio = ratio.map_or_else(absent, |ratio| format!("{ratio:.2}"));
        let engines = result.engines().into_iter().map(cell);
        let compared = is_compared(result).then_some([gain, ratio]);
        (children.to_string(), engines.chain(compared.into_iter().flatten()).collect())
    };
    result.child_counts(size).into_iter().map(row).collect()
}

fn total(cell: Option<&RelayConfigurationResult>) -> String {
    cell.and_then(RelayConfigurationResult::copies_per_s).map_or_else(absent, human_rate)
}

fn absent() -> String {
    ABSENT.to_owned()
}

fn signed_percent(percent: f64) -> String {
    if percent.is_finite() { format!("{percent:+.1}%") } else { absent() }
}

/// Ratio of the copy rates of two senders, by number of children.
pub(crate) struct EngineRatio {
    /// Names of the engine, and of the sender with which it is compared.
    pub(crate) name: String,
    /// Pairs (children, ratio); numbers of children for which one side was not measured are
    /// omitted.
    pub(crate) ratios: Vec<(usize, f64)>,
}

/// Returns the gains of the engines for a packet size: over the first engine, and over a source
/// that sends the copies without a relay.
pub(crate) fn gains(result: &BenchRelayResult, size: usize) -> Vec<EngineRatio> {
    let engines = result.engines();
    let rate = |children, engine| result.cell(size, children, engine)?.copies_per_s();
    let gain = |engine: RelayEngine, name: &str, other: &dyn Fn(usize) -> Option<f64>| {
        let ratio = |children| {
            let other = other(children).filter(|other| *other > 0.0)?;
            Some((children, amount(rate(children, engine)? / other)?))
        };
        let ratios = result.child_counts(size).into_iter().filter_map(ratio).collect();
        EngineRatio { name: format!("{} over {name}", engine.name()), ratios }
    };
    let mut gains = Vec::new();
    if let [first, others @ ..] = &engines[..] {
        let over_first = |children| rate(children, *first);
        gains.extend(others.iter().map(|engine| gain(*engine, first.name(), &over_first)));
    }
    if let Some(direct) = result.direct.iter().find(|direct| direct.size_bytes == size) {
        let without = |_| Some(direct.rate);
        gains.extend(engines.iter().map(|engine| gain(*engine, "no relay", &without)));
    }
    gains.retain(|gain| !gain.ratios.is_empty());
    gains
}

/// Returns the titles of the gains of copies, and a row for each number of children.
pub(crate) fn gain_rows(gains: &[EngineRatio]) -> (Vec<&str>, Vec<(String, Vec<String>)>) {
    let mut children: Vec<usize> = Vec::new();
    for (of, _) in gains.iter().flat_map(|gain| &gain.ratios) {
        if !children.contains(of) {
            children.push(*of);
        }
    }
    let cell = |gain: &EngineRatio, of: usize| {
        let ratio = gain.ratios.iter().find(|(children, _)| *children == of);
        ratio.map_or_else(absent, |(_, ratio)| times(*ratio))
    };
    let row = |of: usize| (of.to_string(), gains.iter().map(|gain| cell(gain, of)).collect());
    let titles = gains.iter().map(|gain| gain.name.as_str()).collect();
    (titles, children.into_iter().map(row).collect())
}

/// Titles and widths of the columns with the cost of a copy, without children and engine.
pub(crate) const COST_COLUMNS: [(&str, usize); 6] =
    [("added p50", 9), ("p99", 8), ("last p50", 9), ("p99", 8), ("CPU/copy", 10), ("relay CPU", 8)];

/// Returns cost and added delay of a copy, one row per number of children and engine.
pub(crate) fn costs(result: &BenchRelayResult, size: usize) -> Vec<(String, Vec<String>)> {
    let cells = result.cells.iter().filter(|cell| cell.size_bytes == size);
    let row = |cell: &RelayConfigurationResult| {
        let last = |value: fn(&Distribution) -> u64| {
            cell.last_copy_ns.as_ref().map_or_else(absent, |times| human_ns(value(times)))
        };
        let last = [last(|times| times.p50), last(|times| times.p99)];
        let added = cell.added_ns().map_or_else(|| [absent(), absent()], |ns| ns.map(signed_ns));
        let costs = [cell.cpu_ns_per_copy(), cell.relay_ns_per_copy()];
        let costs = costs.map(|ns| ns.map_or_else(absent, mean_ns));
        let figures = added.into_iter().chain(last).chain(costs);
        (format!("{} {}", cell.children, cell.engine.name()), figures.collect())
    };
    cells.map(row).collect()
}

/// Returns the baseline without a relay in words.
pub(crate) fn direct(direct: &RelayBaseline) -> String {
    let threads = match direct.source_threads {
        1 => "1 thread".to_owned(),
        threads => format!("{threads} threads"),
    };
    let rate = human_rate(direct.rate);
    let receiving = |what: &str, ns: Option<f64>| {
        ns.and_then(amount).map(|ns| format!("receiving {what} costs {}", mean_ns(ns)))
    };
    let parts = [
        receiving("a frame", direct.receiving_frame_ns),
        receiving("a packet on a socket", direct.receiving_socket_ns),
    ];
    let first = format!("Without a relay: {rate} from {threads}");
    let parts: Vec<_> = [Some(first)].into_iter().chain(parts).flatten().collect();
    parts.join("; ") + "."
}

/// Returns the conclusions for a packet size, and the comparison with published values.
pub(crate) fn sentences(result: &BenchRelayResult, size: usize) -> Vec<String> {
    let (least, most) = PUBLISHED_GAIN;
    let gain = result.mean_gain_percent(size).map(|gain| {
        format!(
            "Gain of xdp over send, mean: {}; published: +{least}% to +{most}%, by size.",
            signed_percent(gain)
        )
    });
    let of_engine = |engine: RelayEngine| {
        let shape = result.scaling(size, engine)?;
        Some(match engine {
            RelayEngine::Xdp => growth(&shape),
            other => flatness(other, &shape),
        })
    };
    gain.into_iter().chain(result.engines().into_iter().filter_map(of_engine)).collect()
}

fn flatness(engine: RelayEngine, shape: &RelayScaling) -> String {
    let (name, times) = (engine.name(), format!("highest {:.2} times lowest", shape.spread));
    if shape.is_flat() {
        format!("The total of {name} is flat over the number of children ({times}), as published.")
    } else {
        format!(
            "The total of {name} is not flat over the number of children ({times}, above \
             {FLAT_RATIO_MAX}), unlike published."
        )
    }
}

fn growth(shape: &RelayScaling) -> String {
    let (growth, highest, more) = (shape.growth, human_rate(shape.highest), shape.more_children);
    if shape.always_grows {
        format!(
            "The total of xdp grows with the number of children, as published: to {growth:.2} times \
             with {more:.0} times as many (published: linearly)."
        )
    } else if shape.is_flat() {
        format!(
            "The total of xdp is flat over the number of children (highest {highest}), unlike \
             published."
        )
    } else {
        format!(
            "The total of xdp grows up to {} children and not beyond (highest {highest}), unlike \
             published.",
            shape.grows_to
        )
    }
}

/// Formats a packet size.
pub(crate) fn size_name(size: usize) -> String {
    format!("{} B", full_count(size as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn shapes_are_compared_with_the_published_ones() {
        let result = fixture::bench_relay();
        let text = sentences(&result, 64).join(" ");
        assert!(text.contains("+40.49% to +132.45%") && text.contains("as published"), "{text}");
        let mut other = result;
        other.cells.iter_mut().filter(|cell| cell.children == 16).for_each(|cell| {
            cell.repetitions.iter_mut().for_each(|round| round.copies_per_s /= 4.0);
        });
        let text = sentences(&other, 64).join(" ");
        assert!(text.contains("not flat") && text.contains("up to 4 children"), "{text}");
    }

    #[test]
    fn a_gain_is_one_of_two_engines() {
        let mut result = fixture::bench_relay();
        let titles = |result: &BenchRelayResult| {
            let titles = total_columns(result).into_iter().map(|(title, _)| title);
            let titles: Vec<_> = titles.collect();
            for (_, cells) in totals(result, 64) {
                assert_eq!(cells.len(), titles.len());
            }
            titles
        };
        assert!(titles(&result).ends_with(&["gain", "ratio"]));
        result.cells.retain(|cell| cell.engine != RelayEngine::Send);
        assert!(!titles(&result).contains(&"gain"));
    }

    #[test]
    fn engines_gain_over_the_first_and_over_no_relay() {
        let mut result = fixture::bench_relay();
        let names = |result: &BenchRelayResult| {
            gains(result, 64).into_iter().map(|gain| gain.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&result), ["xdp over send", "send over no relay", "xdp over no relay"]);
        let (_, most) = *gains(&result, 64)[0].ratios.last().unwrap();
        assert_eq!(Some(most), result.xdp_to_send_ratio(64, 16));
        result.direct.clear();
        result.cells.iter_mut().filter(|cell| cell.children == 4).for_each(|cell| {
            cell.repetitions.clear();
        });
        let left = gains(&result, 64);
        let children: Vec<_> = left[0].ratios.iter().map(|(children, _)| *children).collect();
        assert_eq!((left.len(), children), (1, vec![1, 16]));
        let (titles, rows) = gain_rows(&left);
        assert_eq!((titles, rows.len()), (vec!["xdp over send"], 2));
        result.cells.retain(|cell| cell.engine == RelayEngine::Xdp);
        assert!(names(&result).is_empty(), "nothing is left to compare it with");
    }

    #[test]
    fn what_was_not_measured_is_absent() {
        let mut result = fixture::bench_relay();
        result.cells.iter_mut().for_each(|cell| {
            cell.repetitions.clear();
            (cell.first_copy_ns, cell.last_copy_ns) = (None, None);
        });
        assert!(sentences(&result, 64).is_empty());
        let cells = totals(&result, 64).into_iter().chain(costs(&result, 64));
        assert!(cells.flat_map(|(_, cells)| cells).all(|cell| cell == ABSENT));
    }
}
