//! Numbers for people: three significant digits and a unit. For display only; exact values are in
//! the result.

use horolog_record::ExactSummary;

/// Text for an absent value.
pub const ABSENT: &str = "-";

/// Prefixes of the powers of a thousand, up to the range of a count of 64 bits.
const PREFIXES: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];

/// Formats a time in `ns`, `µs`, `ms` or `s` with three significant digits. Above 999 s, which no
/// reply timeout allows, only that bound is shown.
#[must_use]
pub fn human_ns(ns: u64) -> String {
    if ns < 1000 {
        return format!("{ns} ns");
    }
    match scaled(ns as f64) {
        (_, 4..) => ">999 s".to_owned(),
        (value, power) => {
            format!("{} {}", three_digits(value), ["ns", "µs", "ms", "s"][power])
        }
    }
}

/// Formats a period, such as `20.0 ms`; from a thousand seconds on in the largest of days, hours
/// and minutes of which it is a multiple, otherwise in whole seconds: `2 h`, `1,001 s`.
#[must_use]
pub fn period_ns(ns: u64) -> String {
    const SECOND_NS: u64 = 1_000_000_000;
    if ns < 1_000 * SECOND_NS {
        return human_ns(ns);
    }
    let units = [(86_400, "d"), (3_600, "h"), (60, "min")];
    let whole = units.into_iter().find(|(seconds, _)| ns.is_multiple_of(seconds * SECOND_NS));
    let (seconds, unit) = whole.unwrap_or((1, "s"));
    format!("{} {unit}", full_count(ns / (seconds * SECOND_NS)))
}

/// Formats a signed time with its sign, such as `+250 µs` or `-3.00 ms`; from 1000 seconds on in
/// whole seconds.
#[must_use]
pub fn signed_ns(ns: i64) -> String {
    const SECONDS_NS: u64 = 1_000_000_000;
    let sign = match ns {
        0 => "",
        1.. => "+",
        _ => "-",
    };
    let size = ns.unsigned_abs();
    if size < 999_500_000_000 {
        format!("{sign}{}", human_ns(size))
    } else {
        format!("{sign}{} s", full_count(size / SECONDS_NS))
    }
}

/// Formats a computed signed time in ns, rounded to the nearest ns; [`ABSENT`] if it is NaN or
/// infinite.
#[must_use]
pub fn signed_mean_ns(ns: f64) -> String {
    if ns.is_finite() { signed_ns(ns.round() as i64) } else { ABSENT.to_owned() }
}

/// Formats a computed time in ns without sign, rounded to the nearest ns; [`ABSENT`] if it is
/// negative, NaN or infinite.
#[must_use]
pub fn mean_ns(ns: f64) -> String {
    amount(ns).map_or_else(|| ABSENT.to_owned(), |ns| human_ns(ns.round() as u64))
}

/// Formats a rate per second with three significant digits: `950/s`, `45.0 k/s`, `3.98 M/s`;
/// [`ABSENT`] if it is negative or not a number.
#[must_use]
pub fn human_rate(rate: f64) -> String {
    let Some(rate) = amount(rate) else { return ABSENT.to_owned() };
    match scaled(rate) {
        (value, 0) => format!("{}/s", three_digits(value)),
        (value, power) if power < PREFIXES.len() => {
            format!("{} {}/s", three_digits(value), PREFIXES[power])
        }
        _ => format!("{rate:.2e}/s"),
    }
}

/// Formats a rate with three significant digits and the given unit; [`ABSENT`] if it is negative,
/// NaN or infinite.
pub(crate) fn per_second(rate: f64, unit: &str) -> String {
    let Some(rate) = amount(rate) else { return ABSENT.to_owned() };
    let text = human_rate(rate);
    text.strip_suffix("/s").map_or_else(
        || text.clone(),
        |number| {
            let number = number.trim_end();
            // A number that ends in a prefix is followed by the unit without a gap.
            let gap = if number.ends_with(|c: char| c.is_ascii_alphabetic()) { "" } else { " " };
            format!("{number}{gap}{unit}")
        },
    )
}

/// Formats a count in full, with a comma between the thousands.
#[must_use]
pub fn full_count(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a rate in full, such as `10,000/s`: rounded from 100 on.
pub(crate) fn full_rate(rate: f64) -> String {
    if rate < 100.0 {
        format!("{rate}/s")
    } else {
        format!("{}/s", full_count(rate.round() as u64))
    }
}

/// Formats a share from 0 to 1 as a percentage with two decimals. Only 0 is shown as `0.00%`, and
/// only 1 as `100.00%`, because a single lost packet matters in a search for a lossless rate.
/// Shares above 1 (unsolicited replies) are shown up to `>9999%`.
#[must_use]
pub fn percent(ratio: f64) -> String {
    let Some(ratio) = amount(ratio) else { return ABSENT.to_owned() };
    let percent = ratio * 100.0;
    if percent > 0.0 && percent < 0.005 {
        "<0.01%".to_owned()
    } else if (99.995..100.0).contains(&percent) {
        ">99.99%".to_owned()
    } else if percent >= 9999.5 {
        ">9999%".to_owned()
    } else if percent >= 999.995 {
        format!("{percent:.0}%")
    } else {
        format!("{percent:.2}%")
    }
}

/// Formats a ratio with three significant digits, such as `0.0357 ×` or `22.1 ×`; [`ABSENT`] if it
/// is negative, NaN or infinite.
pub(crate) fn times(ratio: f64) -> String {
    let Some(ratio) = amount(ratio) else { return ABSENT.to_owned() };
    let above = if ratio > 0.0 { ratio.log10().floor() } else { 2.0 };
    let decimals = (2.0 - above).clamp(0.0, 9.0) as usize;
    format!("{ratio:.decimals$} ×")
}

/// Formats the ratio of two counts as a percentage; [`ABSENT`] if `whole` is 0.
pub(crate) fn percent_of(part: u64, whole: u64) -> String {
    if whole == 0 { ABSENT.to_owned() } else { percent(part as f64 / whole as f64) }
}

/// Returns the value if it is finite and not negative.
pub(crate) fn amount(value: f64) -> Option<f64> {
    // The absolute value removes the sign of a negative zero.
    (value.is_finite() && value >= 0.0).then(|| value.abs())
}

/// Returns a value below 1000 and the power of 1000 that was divided out. The limit is the value at
/// which three digits would round up to `1000`.
fn scaled(mut value: f64) -> (f64, usize) {
    let mut power = 0;
    while value >= 999.5 {
        value /= 1000.0;
        power += 1;
    }
    (value, power)
}

fn three_digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// Formats a count and the whole of which it is a part.
pub(crate) fn count_of(part: u64, whole: u64) -> String {
    format!("{} of {}", full_count(part), full_count(whole))
}

/// Formats a time in days, hours, minutes and seconds, omitting those that are 0.
pub(crate) fn long_time(seconds: u64) -> String {
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3_600 % 24, "h"),
        (seconds / 60 % 60, "min"),
        (seconds % 60, "s"),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    let texts: Vec<_> = parts.map(|(count, unit)| format!("{count} {unit}")).collect();
    if texts.is_empty() { "0 s".to_owned() } else { texts.join(" ") }
}

/// Formats the time since the start of a run: in seconds, for longer runs with minutes and hours.
pub(crate) fn since_begin(seconds: f64) -> String {
    const MANY: f64 = 600.0;
    if !(MANY..1e15).contains(&seconds) {
        return format!("{seconds:.2} s");
    }
    // Rounded to the shown digits, so that no minute has 60 seconds.
    let hundredths = (seconds * 100.0).round() as u64;
    let (minutes, rest) = (hundredths / 6_000 * 60, hundredths % 6_000);
    if rest == 0 {
        return long_time(minutes);
    }
    format!("{} {:.2} s", long_time(minutes), rest as f64 / 100.0)
}

/// Returns the text with a capital letter and a full stop.
pub(crate) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// Returns the texts of a quantity: mean, standard deviation, root mean square, extremes and
/// percentiles. A single sample has no deviation. `signed` is true if positive values have a plus
/// sign.
pub(crate) fn figure_texts(figures: &ExactSummary, signed: bool) -> [String; 10] {
    let with_sign = |ns: i64| {
        let text = signed_ns(ns);
        if signed { text } else { text.trim_start_matches('+').to_owned() }
    };
    let ExactSummary { mean, stddev, rms, min, p1, p5, p50, p95, p99, max, .. } = *figures;
    let size = |ns: f64| signed_mean_ns(ns).trim_start_matches('+').to_owned();
    let deviation = if figures.count < 2 { ABSENT.to_owned() } else { size(stddev) };
    let [min, p1, p5, p50, p95, p99, max] = [min, p1, p5, p50, p95, p99, max].map(with_sign);
    let mean = if signed { signed_mean_ns(mean) } else { size(mean) };
    [mean, deviation, size(rms), min, p1, p5, p50, p95, p99, max]
}

/// Formats a number in scientific notation without a unit, such as an Allan deviation; [`ABSENT`]
/// if it is not finite.
pub(crate) fn scientific(value: f64) -> String {
    if value.is_finite() { format!("{value:.2e}") } else { ABSENT.to_owned() }
}

/// Formats an averaging time in seconds; [`ABSENT`] if it is negative or not below 10^9.
pub(crate) fn seconds(seconds: f64) -> String {
    if (0.0..1e9).contains(&seconds) {
        format!("{} s", (seconds * 1e6).round() / 1e6)
    } else {
        ABSENT.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rates_have_their_own_unit() {
        assert_eq!(per_second(118e6, "B/s"), "118 MB/s");
        assert_eq!(per_second(950.0, "b/s"), "950 b/s");
        assert_eq!(per_second(f64::NAN, "B/s"), "-");
    }

    #[test]
    fn periods_of_any_length_are_shown() {
        let of = [20_000_000, 7_200_000_000_000, 86_400_000_000_000, 1_001_000_000_000];
        assert_eq!(of.map(period_ns), ["20.0 ms", "2 h", "1 d", "1,001 s"]);
    }

    #[test]
    fn times_have_three_digits_and_carry_into_the_next_unit() {
        let shown = [
            (0, "0 ns"),
            (57, "57 ns"),
            (999, "999 ns"),
            (1000, "1.00 µs"),
            (3621, "3.62 µs"),
            (9996, "10.0 µs"),
            (109_000, "109 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (12_000_000, "12.0 ms"),
            (1_000_000_000, "1.00 s"),
            (999_000_000_000, "999 s"),
            (1_000_000_000_000, ">999 s"),
            (u64::MAX, ">999 s"),
        ];
        for (ns, text) in shown {
            assert_eq!(human_ns(ns), text, "{ns}");
        }
    }

    #[test]
    fn signed_times_have_a_sign_and_whole_seconds_where_they_are_many() {
        let shown = [
            (0, "0 ns"),
            (250_000, "+250 µs"),
            (-3_000_000, "-3.00 ms"),
            (999_499_999_999, "+999 s"),
            (-1_000_000_000_000, "-1,000 s"),
            (i64::MIN, "-9,223,372,036 s"),
        ];
        for (ns, text) in shown {
            assert_eq!(signed_ns(ns), text, "{ns}");
        }
        assert_eq!((signed_mean_ns(-0.4), signed_mean_ns(f64::NAN)), ("0 ns".into(), "-".into()));
        assert_eq!((mean_ns(1_500.4), mean_ns(-1.0)), ("1.50 µs".into(), "-".into()));
    }

    #[test]
    fn rates_have_three_digits() {
        let shown = [
            (0.0, "0.00/s"),
            (12.34, "12.3/s"),
            (950.0, "950/s"),
            (999.6, "1.00 k/s"),
            (45_000.0, "45.0 k/s"),
            (3_981_072.0, "3.98 M/s"),
            (1.5e12, "1.50 T/s"),
            (1e30, "1.00e30/s"),
            (f64::NAN, "-"),
            (f64::INFINITY, "-"),
            (-1.0, "-"),
            (-0.0, "0.00/s"),
        ];
        for (rate, text) in shown {
            assert_eq!(human_rate(rate), text, "{rate}");
        }
    }

    #[test]
    fn ratios_have_three_digits() {
        let shown = [0.035_74, 0.923, 1.0, 22.06, 1_234.5, 0.0, f64::NAN, f64::INFINITY, -1.0];
        let of = ["0.0357 ×", "0.923 ×", "1.00 ×", "22.1 ×", "1234 ×", "0 ×", "-", "-", "-"];
        assert_eq!(shown.map(times), of);
    }

    #[test]
    fn one_lost_in_a_million_is_not_shown_as_none() {
        assert_eq!(percent(0.0), "0.00%");
        assert_eq!(percent(1e-6), "<0.01%");
        assert_eq!(percent(0.000_05), "0.01%");
        assert_eq!(percent(0.0558), "5.58%");
        assert_eq!(percent(1.0 - 1e-6), ">99.99%");
        assert_eq!(percent(1.0), "100.00%");
        assert_eq!(percent(1.68), "168.00%");
        assert_eq!(percent(1e9), ">9999%");
        assert_eq!(percent(f64::NAN), "-");
        assert_eq!(percent_of(0, 0), "-");
    }

    #[test]
    fn counts() {
        assert_eq!(full_count(0), "0");
        assert_eq!(full_count(999), "999");
        assert_eq!(full_count(1_234_567), "1,234,567");
    }

    proptest! {
        #[test]
        fn times_fit_seven_places(ns: u64) {
            prop_assert!(human_ns(ns).chars().count() <= 7);
        }

        #[test]
        fn percentages_fit_seven_places(ratio: f64) {
            let text = percent(ratio);
            prop_assert!(text.chars().count() <= 7, "{}", text);
            prop_assert!(text == ABSENT || !text.contains('-'));
        }

        #[test]
        fn rates_never_show_a_nan_or_a_sign(rate: f64) {
            let text = human_rate(rate);
            prop_assert!(text == ABSENT || !(text.contains("NaN") || text.contains('-') || text.contains("inf")));
        }
    }

    #[test]
    fn a_sentence_begins_and_ends_as_one() {
        assert_eq!((&*sentence("a b"), &*sentence("")), ("A b.", "."));
    }

    #[test]
    fn long_runs_are_shown_in_minutes_and_hours() {
        assert_eq!(since_begin(59.994), "59.99 s");
        assert_eq!(since_begin(1_800.0), "30 min");
        assert_eq!(since_begin(5_399.999), "1 h 30 min");
        assert_eq!(since_begin(5_430.5), "1 h 30 min 30.50 s");
        assert_eq!(since_begin(f64::NAN), "NaN s");
    }

    #[test]
    fn times_are_written_without_what_is_0() {
        assert_eq!(long_time(0), "0 s");
        assert_eq!(long_time(604_800), "7 d");
        assert_eq!(long_time(90_061), "1 d 1 h 1 min 1 s");
    }
}
