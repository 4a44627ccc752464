//! Figures as they are shown: which number a text stands for and how exactly, and whether a cell
//! shows what it has to.
//!
//! A cell is declared as formulas and `'words'` one behind the other (`received & ' of ' & sent`),
//! with `*` for words that are not looked at, and `or` between several ways to show it.

use anyhow::{Context, Result, bail, ensure};

use super::expression::{Expression, Scope, Tokens};

/// What stands where there is no figure.
const ABSENT: [&str; 4] = ["", "-", "–", "not measured"];
/// Units by what is behind their prefix: their own size, in ns, per second, bytes or as a share.
const UNITS: [(&str, f64); 13] = [
    ("ns", 1.0),
    ("µs", 1e3),
    ("ms", 1e6),
    ("min", 60e9),
    ("h", 3_600e9),
    ("%", 0.01),
    ("ppm", 1.0),
    ("×", 1.0),
    ("times", 1.0),
    ("B/s", 1.0),
    ("b/s", 1.0),
    ("/s", 1.0),
    ("B", 1.0),
];
const PREFIXES: [(&str, f64); 5] = [("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)];

/// The number that a text on a page stands for, in ns, per second, bytes or as a share, and half of
/// its last digit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    pub(crate) value: f64,
    tolerance: f64,
    is_time: bool,
}

impl Figure {
    pub(crate) fn of(shown: &str) -> Option<Self> {
        // In several units, such as `1 h 30 min`, the last of which tells how exactly.
        if let Some((first, rest)) = shown.split_once(" h ").or(shown.split_once(" min ")) {
            let size = if shown.contains(" h ") { 3_600e9 } else { 60e9 };
            let rest = Self::of(rest)?;
            return Some(Self { value: first.parse::<f64>().ok()? * size + rest.value, ..rest });
        }
        let plain = shown.replace([',', '+'], "").replace('−', "-");
        let end = plain.find(|c: char| !(c.is_ascii_digit() || "-.e".contains(c)));
        let (digits, unit) = plain.split_at(end.unwrap_or(plain.len()));
        let size = size_of(unit.trim())?;
        let value: f64 = digits.parse().ok()?;
        let (mantissa, exponent) = digits.split_once('e').unwrap_or((digits, "0"));
        let decimals = mantissa.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let digit = 10_f64.powi(exponent.parse::<i32>().ok()? - i32::try_from(decimals).ok()?);
        let is_time = unit.trim().ends_with('s') && !unit.contains('/');
        Some(Self { value: value * size, tolerance: 0.5 * digit * size, is_time })
    }

    /// Whether it is a value to all digits that are shown; of a time that was worked out, to the
    /// nearest ns.
    pub(crate) fn is(self, value: f64) -> bool {
        let rounded = if self.is_time { value.round() } else { value };
        let is_near =
            |value: f64| (self.value - value).abs() <= self.tolerance + 1e-9 * value.abs();
        is_near(value) || is_near(rounded)
    }
}

fn size_of(unit: &str) -> Option<f64> {
    if unit == "s" {
        return Some(1e9);
    }
    let of_prefix = |(prefix, power): &(&str, f64)| {
        let rest = unit.strip_prefix(prefix)?;
        let own = UNITS.iter().find(|(name, _)| *name == rest).map(|(_, size)| *size);
        own.or((rest.is_empty()).then_some(1.0)).map(|size| size * power)
    };
    PREFIXES.iter().find_map(of_prefix)
}

/// A text shows this value: exactly, or on which side of a bound it lies.
pub(crate) fn is_shown(shown: &str, value: f64) -> Result<()> {
    let bound = |sign| shown.strip_prefix(sign).map(str::trim).and_then(Figure::of);
    let is_right = if let Some(bound) = bound('<') {
        value > 0.0 && value < bound.value
    } else if let Some(bound) = bound('>') {
        value > bound.value
    } else {
        Figure::of(shown).with_context(|| format!("'{shown}' is no figure"))?.is(value)
    };
    ensure!(is_right, "'{shown}' in place of {value}");
    Ok(())
}

/// What a cell has to show.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    /// Each way to show it, as parts one behind the other; a part that is none is any words.
    ways: Vec<Vec<Option<Expression>>>,
}

/// What a part has to be in this result.
enum Part {
    Any,
    Absent,
    Number(f64),
    Text(String),
}

impl Pattern {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let context = || format!("'{text}'");
        let mut tokens = Tokens::of(text).with_context(context)?;
        let mut ways = vec![Vec::new()];
        loop {
            let part = if tokens.takes("*") { Ok(None) } else { tokens.expression().map(Some) };
            ways.last_mut().context("no way")?.push(part.with_context(context)?);
            if tokens.takes_word("or") {
                ways.push(Vec::new());
            } else if !tokens.takes("&") {
                break;
            }
        }
        ensure!(tokens.is_at_end(), "'{text}' goes on behind its end");
        Ok(Self { ways })
    }

    /// A text shows what it has to in this place of a result.
    pub(super) fn check(&self, shown: &str, scope: &Scope<'_>) -> Result<()> {
        let mut complaint = None;
        for way in &self.ways {
            let parts: Vec<_> = way.iter().map(|part| wanted(part.as_ref(), scope)).collect();
            match is_made_of(shown, &parts) {
                Ok(()) => return Ok(()),
                Err(error) => complaint = complaint.or(Some(error)),
            }
        }
        Err(complaint.context("nothing is declared")?)
    }
}

fn wanted(part: Option<&Expression>, scope: &Scope<'_>) -> Part {
    let Some(expression) = part else { return Part::Any };
    let Some(item) = expression.one(scope) else { return Part::Absent };
    match (item.number(), item.text()) {
        (_, Some(text)) => Part::Text(text.to_owned()),
        (Some(number), None) => Part::Number(number),
        (None, None) => Part::Absent,
    }
}

/// A text is these parts one behind the other.
fn is_made_of(shown: &str, parts: &[Part]) -> Result<()> {
    let has_absent = parts.iter().any(|part| matches!(part, Part::Absent));
    let has_number = parts.iter().any(|part| matches!(part, Part::Number(_)));
    if has_absent && !has_number && ABSENT.contains(&shown) {
        return Ok(());
    }
    let mut rest = shown;
    let mut before: Option<&Part> = None;
    for part in parts {
        if let Part::Text(text) = part {
            let found = rest.find(&**text);
            let at = found.with_context(|| format!("'{shown}' without '{text}'"))?;
            is_part(rest[..at].trim(), before.take())?;
            rest = &rest[at + text.len()..];
        } else {
            ensure!(before.is_none(), "two figures with nothing between in '{shown}'");
            before = Some(part);
        }
    }
    is_part(rest.trim(), before)
}

fn is_part(shown: &str, part: Option<&Part>) -> Result<()> {
    match part {
        None => ensure!(shown.is_empty(), "'{shown}' that nothing claims"),
        Some(Part::Any) => {
            ensure!(Figure::of(shown).is_none(), "the figure '{shown}' that nothing claims");
        }
        Some(Part::Absent) => ensure!(ABSENT.contains(&shown), "'{shown}' where nothing is"),
        Some(Part::Number(value)) => is_shown(shown, *value)?,
        Some(Part::Text(text)) => bail!("'{text}' is left over"),
    }
    Ok(())
}
