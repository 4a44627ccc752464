//! Words of identifiers, for rules about names.

/// Returns the words of a name in any case: `PathOfRTT` has `path`, `of` and `rtt`.
pub(super) fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let letters: Vec<char> = name.chars().collect();
    for (index, letter) in letters.iter().enumerate() {
        let after_lower = index > 0 && !letters[index - 1].is_uppercase();
        let before_lower = letters.get(index + 1).is_some_and(|next| next.is_lowercase());
        if *letter == '_' || (letter.is_uppercase() && (after_lower || before_lower)) {
            words.push(String::new());
        }
        if *letter != '_'
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_cases_are_split() {
        assert_eq!(words("told_at"), ["told", "at"]);
        assert_eq!(words("ToldLeaps"), ["told", "leaps"]);
        assert_eq!(words("RTTTold"), ["rtt", "told"]);
        assert_eq!(words("TOLD_MAX"), ["told", "max"]);
        assert_eq!(words("untold"), ["untold"]);
    }
}
