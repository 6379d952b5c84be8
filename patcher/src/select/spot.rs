//! Instructions that a user names.

use super::Pattern;
use super::pattern::PatternError;
use crate::addr::{Bias, Svma};
use crate::function::Function;
use crate::image::Image;

/// An instruction as the command line takes it: `FUNC+0xOFFSET`, where `FUNC` is any pattern, `module+0xOFFSET` or
/// `0xADDR`.
#[derive(Clone, Debug)]
pub struct Spot {
    /// The whole text as a pattern, which is an address or none.
    whole: Pattern,
    /// The function, and the bytes from its start.
    of_function: Option<(Pattern, u64)>,
}

impl Spot {
    /// Reads one.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let refuse = || PatternError::Spot {
            text: text.to_owned(),
        };
        let whole = Pattern::parse(text)?;
        let of_function = match text.rsplit_once("+0x") {
            Some((function, offset)) if !function.is_empty() => {
                let offset = u64::from_str_radix(offset, 16).map_err(|_| refuse())?;
                Some((Pattern::parse(function)?, offset))
            }
            _ => None,
        };
        if whole.is_address() || of_function.is_some() {
            Ok(Self { whole, of_function })
        } else {
            Err(refuse())
        }
    }

    /// The text it was read from.
    pub fn text(&self) -> &str {
        self.whole.text()
    }

    /// The functions that it names, where it counts from a function's start.
    pub fn function(&self) -> Option<&Pattern> {
        self.of_function.as_ref().map(|(pattern, _)| pattern)
    }

    /// The pattern that the text is where it is an address, in a process or a file.
    pub fn address(&self) -> Option<&Pattern> {
        Some(&self.whole).filter(|whole| whole.is_address())
    }

    /// The places in functions of these names in `image`, a file of the name `module`.
    pub fn in_functions(&self, image: &Image<'_>, module: &str) -> Vec<(Function, Svma)> {
        let Some((pattern, offset)) = &self.of_function else {
            return Vec::new();
        };
        if pattern.is_address() || !pattern.module_matches(module) {
            return Vec::new();
        }
        let found = pattern.select(image, module).into_iter();
        let place = |f: Function| Some((f.range.start.0.checked_add(*offset)?, f));
        found
            .filter_map(place)
            .map(|(at, f)| (f, Svma(at)))
            .collect()
    }

    /// The address in a file that is loaded with `bias`, where the text is an address.
    pub fn address_in(&self, bias: Bias) -> Option<Svma> {
        let whole = self.address()?;
        let absolute = whole.absolute_address().map(|at| bias.to_svma(at));
        absolute.or_else(|| whole.address_in_file())
    }
}

#[cfg(test)]
mod tests {
    use super::Spot;

    #[test]
    fn spots_are_told_from_functions() {
        let of_function = |text: &str| {
            let spot = Spot::parse(text).expect(text);
            let function = spot.function().map(|p| p.text().to_owned());
            (function, spot.address().is_some())
        };
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(of_function("work+0x1c"), (some("work"), true));
        assert_eq!(
            of_function("ns::f(int)+0x0"),
            (some("ns::f(int)"), true),
            "also a file of that name"
        );
        assert_eq!(
            of_function("libc.so*!mem*+0x4"),
            (some("libc.so*!mem*"), false)
        );
        assert_eq!(of_function("0x401136"), (None, true));
        assert_eq!(of_function("app!0x1136"), (None, true));
        for bad in ["work", "work+12", "work+0x", "+0x10", "", "work+0xg"] {
            assert!(Spot::parse(bad).is_err(), "{bad}");
        }
    }
}
