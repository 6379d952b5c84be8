//! Scores the match of a name with the typed text: its letters in order, possibly with gaps.
//!
//! Names are compared by bytes, ignoring the case of ASCII letters. The fuzzy matching library
//! `frizbee` was rejected: its code for each vector width was a fifth of the program.

/// The bonus of a name that contains the text in one piece. It exceeds every score with gaps.
const IN_ONE_PIECE: i32 = 1 << 20;
/// The bonus of a letter that begins a word, in bytes of gaps.
const BEGINNING: i32 = 8;

/// The score of a name, larger for a better match. `None` if the name does not match. Each word of
/// `text` is matched separately.
pub(super) fn score(name: &str, text: &str) -> Option<i32> {
    let words = text.split_whitespace();
    let mut scores = words.map(|word| score_of(name.as_bytes(), word.as_bytes()));
    scores.try_fold(0i32, |sum, score| Some(sum.saturating_add(score?)))
}

fn score_of(name: &[u8], word: &[u8]) -> Option<i32> {
    let pieces = name.windows(word.len()).enumerate();
    let pieces = pieces.filter(|(_, piece)| piece.eq_ignore_ascii_case(word));
    let best = pieces.map(|(at, piece)| {
        let ends = at + word.len() == name.len() || begins_word(name, at + word.len());
        let is_same = i32::from(piece == word);
        BEGINNING * (i32::from(begins_word(name, at)) + i32::from(ends)) + is_same
    });
    best.max()
        .map(|score| IN_ONE_PIECE + score)
        .or_else(|| with_gaps(name, word))
}

/// The score of a match with gaps (the first algorithm of fzf). `None` if there is none. It
/// searches forward for the end of the first match, and from there backward for the nearest start.
fn with_gaps(name: &[u8], word: &[u8]) -> Option<i32> {
    let mut rest = word.iter();
    let mut wanted = rest.next();
    let mut end = None;
    for (at, byte) in name.iter().enumerate() {
        if wanted.is_some_and(|wanted| wanted.eq_ignore_ascii_case(byte)) {
            wanted = rest.next();
            if wanted.is_none() {
                end = Some(at);
                break;
            }
        }
    }
    let end = end?;
    let mut rest = word.iter().rev();
    let mut wanted = rest.next();
    let mut score = 0;
    for at in (0..=end).rev() {
        let Some(letter) = wanted else {
            break;
        };
        if letter.eq_ignore_ascii_case(&name[at]) {
            score += BEGINNING * i32::from(begins_word(name, at));
            wanted = rest.next();
        } else {
            score -= 1
        }
    }
    Some(score)
}

/// True if a word begins at the index `at` of `name`, as after `_`, `::` or in `someName`.
fn begins_word(name: &[u8], at: usize) -> bool {
    let Some(byte) = name.get(at) else {
        return false;
    };
    match at.checked_sub(1).map(|before| name[before]) {
        None => true,
        Some(before) if !before.is_ascii_alphanumeric() => true,
        Some(before) => before.is_ascii_lowercase() && byte.is_ascii_uppercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_the_letters_in_order_match() {
        for (name, text, is_match) in [
            ("malloc", "mloc", true),
            ("Store::load(int)", "STLOAD", true),
            ("malloc", "colm", false),
            ("lookup", "lookupp", false),
            ("Grüße", "rüe", true),
            ("lookup_order", "order look", true),
            ("lookup_order", "order find", false),
        ] {
            assert_eq!(score(name, text).is_some(), is_match, "{name} {text}");
        }
    }

    #[test]
    fn better_matches_have_higher_scores() {
        for (text, better, worse) in [
            ("load", "store_load", "local_add"),
            ("load", "store_load", "overloaded"),
            ("gs", "getSize", "bigxs"),
            ("Map", "Map::get", "map_get"),
        ] {
            assert!(
                score(better, text) > score(worse, text),
                "{text}: {better} {worse}"
            );
        }
    }
}
