//! Recipes of frames as unwind rules.

use abi::cause::Cause;
use patcher::flow::Recipe;
use unwind::Rule;

/// The unwind rule that corresponds to a recipe.
pub fn rule(recipe: Recipe) -> Rule {
    match recipe {
        Recipe::FromStackPointer(frame) => Rule::FromSp {
            cfa_offset: frame.cfa,
            fp_words: frame.caller_frame_pointer,
        },
        Recipe::FromFramePointer(frame) => Rule::FromFp {
            cfa_offset: frame.cfa,
            fp_words: frame.caller_frame_pointer,
        },
        Recipe::Realigned {
            cfa_at,
            caller_frame_pointer,
        } => Rule::Realigned {
            cfa_at,
            fp_words: caller_frame_pointer,
        },
        Recipe::Ambiguous => Rule::Stop(Cause::Ambiguous),
        Recipe::Outermost => Rule::Root,
    }
}
