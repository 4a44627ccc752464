//! The functions of formulas: of all values of a path, or of several values.

use super::expression::Item;

/// What a function gives for the values of each of its arguments.
pub(super) fn call<'a>(name: &str, arguments: &[Vec<Item<'a>>]) -> Option<Item<'a>> {
    let numbers = || arguments.iter().flatten().map(Item::number).collect::<Option<Vec<_>>>();
    match name {
        "when" => when(arguments),
        "else" => arguments.iter().flatten().next().cloned(),
        "words" => joined(arguments, " "),
        "list" => joined(arguments, ", "),
        "count" => Some(Item::Number(arguments.iter().flatten().count() as f64)),
        _ => of_numbers(name, numbers()?).map(Item::Number),
    }
}

/// The second where the first holds, the third where it does not.
fn when<'a>(arguments: &[Vec<Item<'a>>]) -> Option<Item<'a>> {
    let first = arguments.first()?.first();
    let holds = first.is_some_and(|item| item.number() != Some(0.0));
    arguments.get(if holds { 1 } else { 2 })?.first().cloned()
}

/// All of them one behind the other, those left out that are not there.
fn joined<'a>(arguments: &[Vec<Item<'a>>], between: &str) -> Option<Item<'a>> {
    let word = |item: &Item<'_>| {
        let text = item.text().map(str::to_owned);
        text.or_else(|| item.number().map(|number| number.to_string()))
    };
    let words: Vec<_> = arguments.iter().flatten().filter_map(word).collect();
    (!words.is_empty()).then(|| Item::Text(words.join(between)))
}

fn of_numbers(name: &str, mut numbers: Vec<f64>) -> Option<f64> {
    let (sum, count) = (numbers.iter().sum::<f64>(), numbers.len());
    match name {
        "sum" => Some(sum),
        "deviation" => {
            let mean = sum / count as f64;
            let squares = numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>();
            (count > 1).then(|| (squares / count as f64).sqrt())
        }
        "mean" => (count > 0).then(|| sum / count as f64),
        "min" => numbers.into_iter().reduce(f64::min),
        "max" => numbers.into_iter().reduce(f64::max),
        // A logarithmic axis has no place for 0.
        "positive" => numbers.first().map(|number| number.max(1.0)),
        "asinh" => numbers.first().map(|number| number.asinh()),
        "floor" => numbers.first().map(|number| number.floor()),
        "abs" => numbers.first().map(|number| number.abs()),
        // Of an even number the mean of the two in the middle.
        "median" => {
            numbers.sort_by(f64::total_cmp);
            let (low, high) = (numbers.get(count.checked_sub(1)? / 2)?, numbers.get(count / 2)?);
            Some(low.midpoint(*high))
        }
        _ => None,
    }
}
