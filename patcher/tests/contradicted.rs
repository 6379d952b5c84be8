//! Unwind rows that the instructions contradict.

mod libraries;

use std::time::Instant;

use patcher::flow::contradicted;
use patcher::image::Image;

/// Prints the number of contradicted rows in each file of `IPATH_CONTRADICTED` (separated by
/// colons), and the first rows. `--nocapture` shows them.
#[test]
fn how_many_rows_are_contradicted() {
    let files = std::env::var("IPATH_CONTRADICTED").unwrap_or_default();
    for file in files.split(':').filter(|file| !file.is_empty()) {
        let data = std::fs::read(file).expect("a file");
        let image = Image::parse(&data).expect("an ELF image");
        let began = Instant::now();
        image.fde(patcher::Svma(0));
        let read = began.elapsed();
        let began = Instant::now();
        let found = contradicted(&image);
        let ms = began.elapsed().as_millis();
        println!(
            "{file}: {} rows, {ms} ms beside {} ms for the tables",
            found.len(),
            read.as_millis()
        );
        for (after, recipe) in found.iter().take(40) {
            let function = image.functions().containing(*after);
            let name = function.and_then(|f| f.linkage).unwrap_or("?");
            println!("  {after} {recipe:?} {name}");
        }
    }
}
