#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/image/decode.h"
#include "models/image/folder.h"
#include "tests/models/image/image_test_util.h"

namespace pipit::internal {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ImageFolder : public ::testing::Test {
 protected:
  static constexpr std::string_view kJpeg{"\xFF\xD8\xFF\xE0", 4};
  static constexpr std::string_view kPng{"\x89PNG\r\n\x1A\n"};
  static constexpr std::string_view kBmp{"BM\x3a\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0", 18};

  /// No image but for its name.
  void add(const std::string& name) const { folder_.write(name, "x"); }
  void write(const std::string& name, std::string_view content) const { folder_.write(name, content); }
  std::vector<std::string> relative() const {
    std::vector<std::string> out;
    for (const fs::path& path : list_images(root()).paths)
      out.push_back(path.lexically_relative(root()).string());
    return out;
  }
  std::vector<std::pair<std::string, int>> labelled(const Labels& labels, int classes = 0) const {
    std::vector<std::pair<std::string, int>> out;
    for (const auto& [path, label] : list_labelled_images(root(), labels, classes).images) {
      out.emplace_back(path.lexically_relative(root()).string(), label);
    }
    return out;
  }
  std::string list_error() const {
    return test::error_of([&] { list_images(root()); });
  }
  std::string label_error(const Labels& labels, int classes = 0) const {
    return test::error_of([&] { list_labelled_images(root(), labels, classes); });
  }
  const fs::path& root() const { return folder_.path(); }

 private:
  test::TemporaryFolder folder_;
};

TEST_F(ImageFolder, ListsImagesOfAllExtensionsSortedByPath) {
  for (const char* name :
       {"b/2.PNG", "b/10.jpeg", "a.JPG", "z.bmp", "b/c/d/e.JpEg", "notes.txt", "jpg", "x.jpg.txt"}) {
    add(name);
  }
  EXPECT_THAT(relative(), ElementsAre("a.JPG", "b/10.jpeg", "b/2.PNG", "b/c/d/e.JpEg", "z.bmp"));
}

TEST_F(ImageFolder, SkipsHiddenFilesAndFolders) {
  for (const char* name : {".hidden.jpg", "._a.jpg", ".cache/b.jpg", "a.jpg"}) add(name);
  EXPECT_THAT(relative(), ElementsAre("a.jpg"));
}

TEST_F(ImageFolder, FollowsLinksButNotInCircles) {
  add("b/1.jpg");
  add("b/deep/2.jpg");
  fs::create_directory_symlink(root(), root() / "b/up");
  fs::create_directory_symlink(root() / "b", root() / "a");  // sorts first, but b is the real one
  fs::create_symlink(root() / "b/1.jpg", root() / "c.jpg");
  EXPECT_THAT(relative(), ElementsAre("b/1.jpg", "b/deep/2.jpg", "c.jpg"));
}

TEST_F(ImageFolder, FollowsLinksOutOfTheFolder) {
  const test::TemporaryFolder elsewhere;
  elsewhere.write("x/1.jpg", "x");
  fs::create_directory_symlink(elsewhere.path(), root() / "link");
  EXPECT_THAT(relative(), ElementsAre("link/x/1.jpg"));
}

// What claims to be an image by its name is listed, so that decoding says what is wrong with it.
TEST_F(ImageFolder, WhatCannotBeReadIsListedByItsName) {
  add("a.jpg");
  fs::create_symlink("nowhere.jpg", root() / "b.jpg");
  fs::create_symlink("nowhere", root() / "link");
  ASSERT_EQ(mkfifo((root() / "c.png").c_str(), 0600), 0);
  ASSERT_EQ(mkfifo((root() / "pipe").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", root() / "d.bmp");
  fs::create_symlink("/dev/zero", root() / "zeros");
  add("text.jfif");
  write("empty.webp", "");
  EXPECT_THAT(relative(), ElementsAre("a.jpg", "b.jpg", "c.png", "d.bmp", "empty.webp", "text.jfif"));
  for (const char* name : {"b.jpg", "c.png", "d.bmp", "empty.webp", "text.jfif"})
    EXPECT_THAT(test::error_of([&] { decode_image(root() / name); }), HasSubstr(name));
}

TEST_F(ImageFolder, FilesAreToldByTheirContent) {
  write("h", kJpeg);
  write("photo.txt", kPng);
  write("sub/x.tif", kBmp);
  write("really-gif.jpg", "GIF89a..........................");
  write("also.gif", "GIF87a..........................");
  write("a.heic", std::string_view("\0\0\0\x18"
                                   "ftypmif1\0\0\0\0mif1heic",
                                   24));
  write("a.avif", std::string_view("\0\0\0\x1c"
                                   "ftypmif1\0\0\0\0mif1avifmiaf",
                                   28));
  write("film.mp4", std::string_view("\0\0\0\x18"
                                     "ftypisom\0\0\0\0isomavc1",
                                     24));
  write("i.ppm", "P6\n8 8\n255\n............");
  write("j.pgm", "P5 # made by hand\n8 8 255 ....");
  write("t.tif", std::string_view("II*\0\x08\0\0\0", 8));
  write("favicon.ico", std::string_view("\0\0\1\0\1\0\x10\x10\0\0\1\0\x20\0\x68\4\0\0\x16\0\0\0", 22));
  for (const auto& [name, text] : {std::pair{"bmw", "BMW makes cars and motorcycles in Munich"},
                                   {"p3", "P3 is a processor of 1999"},
                                   {"gif", "GIFT"},
                                   {"riff", "RIFF....WAVEfmt "},
                                   {"short", "B"},
                                   {"readme.md", "# Pictures"}}) {
    write(name, text);
  }
  EXPECT_THAT(relative(), ElementsAre("h", "photo.txt", "sub/x.tif"));
  const LeftOut left_out = list_images(root()).left_out;
  EXPECT_EQ(
      left_out,
      (LeftOut{{{"AVIF", 1}, {"GIF", 2}, {"HEIC", 1}, {"ICO", 1}, {"PGM", 1}, {"PPM", 1}, {"TIFF", 1}}, {}}));
  EXPECT_THAT(left_out_note(left_out), AllOf(HasSubstr("8 images are left out"), HasSubstr("2 GIF")));
  EXPECT_EQ(left_out_note({}), "");
}

TEST_F(ImageFolder, WebPIsReadWhereThereIsALibrary) {
  write("a", kJpeg);
  write("b", "RIFF....WEBPVP8 ................");
  write("c", std::string_view("RIFF....WEBPVP8X\x0a\0\0\0\x02\0\0\0....", 28));  // several frames
  const bool read = !image_decoders().webp.empty();
  const ImageFiles found = list_images(root());
  EXPECT_EQ(found.paths.size(), read ? 2U : 1U);
  EXPECT_EQ(found.left_out,
            (read ? LeftOut{{{"animated WebP", 1}}, {}} : LeftOut{{{"WebP", 1}, {"animated WebP", 1}}, {}}));
}

TEST_F(ImageFolder, OnlyImagesOfOtherFormatsAreAnErrorThatNamesThem) {
  write("a.gif", "GIF89a..........................");
  // No model is at fault, so this is no UnsupportedError.
  const auto plain_error = [](auto&& act) -> std::string {
    try {
      act();
    } catch (const UnsupportedError&) {
      return "unsupported";
    } catch (const Error& e) {
      return e.what();
    }
    return {};
  };
  EXPECT_THAT(plain_error([&] { list_images(root()); }), HasSubstr("1 GIF"));
  EXPECT_THAT(plain_error([&] { list_images(root() / "a.gif"); }),
              AllOf(HasSubstr("a.gif"), HasSubstr("GIF is not read")));
}

TEST_F(ImageFolder, AFolderNamedLikeAnImageIsAFolder) {
  add("a.jpg/b.png");
  EXPECT_THAT(relative(), ElementsAre("a.jpg/b.png"));
}

TEST_F(ImageFolder, AnEmptyOrMissingFolderIsAnError) {
  EXPECT_THAT(list_error(), AllOf(HasSubstr(root().string()), HasSubstr("there is no JPEG")));
  add("x.txt");
  EXPECT_THAT(list_error(), HasSubstr("there is no JPEG"));
  EXPECT_THAT(test::error_of([&] { list_images(root() / "none"); }), HasSubstr("no such"));
  EXPECT_THAT(test::error_of([&] { list_images(root() / "x.txt"); }), HasSubstr("neither"));
}

TEST_F(ImageFolder, AFolderThatCannotBeReadIsLeftOut) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read every folder";
  add("closed/a.jpg");
  fs::permissions(root() / "closed", fs::perms::none);
  EXPECT_THAT(list_error(), HasSubstr("closed"));  // there is no other image
  add("b.jpg");
  const ImageFiles found = list_images(root());
  EXPECT_EQ(found.paths, std::vector{root() / "b.jpg"});
  ASSERT_EQ(found.left_out.folders.size(), 1U);
  EXPECT_EQ(found.left_out.folders[0].path, root() / "closed");
  EXPECT_THAT(left_out_note(found.left_out), AllOf(HasSubstr("1 folder is left out"), HasSubstr("closed")));
  EXPECT_THAT(test::error_of([&] { found.left_out.end_at_folders(); }), HasSubstr("closed"));
  fs::permissions(root() / "closed", fs::perms::owner_all);
}

TEST_F(ImageFolder, OfSeveralFoldersThoseWithoutImagesAreLeftOut) {
  add("a/a.jpg");
  write("b/b.gif", "GIF89a..........................");
  write("c/c.gif", "GIF89a..........................");
  add("c/c.jpg");
  ImageFiles files;
  for (const char* name : {"a", "b", "c", "d"}) add_images(files, root() / name);
  EXPECT_EQ(files.paths, (std::vector{root() / "a/a.jpg", root() / "c/c.jpg"}));
  EXPECT_EQ(files.left_out.formats, (std::map<std::string, std::int64_t>{{"GIF", 1}}));
  ASSERT_EQ(files.left_out.folders.size(), 2U);
  EXPECT_THAT(files.left_out.folders[0].error, AllOf(HasSubstr("b: no"), HasSubstr("1 GIF")));
  EXPECT_THAT(files.left_out.folders[1].error, HasSubstr("d: no such"));
  EXPECT_THAT(left_out_note(files.left_out), AllOf(HasSubstr("1 GIF"), HasSubstr("2 folders are left out")));
}

TEST_F(ImageFolder, ASingleImageMayStandForAFolder) {
  add("3_x.jpg");
  EXPECT_THAT(list_images(root() / "3_x.jpg").paths, ElementsAre(root() / "3_x.jpg"));
  EXPECT_EQ(list_labelled_images(root() / "3_x.jpg", {}).images.at(0).label, 3);
}

TEST_F(ImageFolder, ClassesComeFromFolderNames) {
  for (const char* name : {"dog/1.jpg", "Cat/sub/2.jpg", "Cat/0_3.jpg"}) add(name);
  EXPECT_THAT(
      labelled({"dog", "cat"}),
      ElementsAre(std::pair{"Cat/0_3.jpg", 1}, std::pair{"Cat/sub/2.jpg", 1}, std::pair{"dog/1.jpg", 0}));
}

TEST_F(ImageFolder, TheInnermostFolderDecides) {
  add("cat/dog/1.jpg");
  EXPECT_THAT(labelled({"dog", "cat"}), ElementsAre(std::pair{"cat/dog/1.jpg", 0}));
}

TEST_F(ImageFolder, ClassesComeFromFileNamesOtherwise) {
  for (const char* name : {"0001_dog.jpg", "val/0_x.png"}) add(name);
  EXPECT_THAT(labelled({"dog", "cat"}),
              ElementsAre(std::pair{"0001_dog.jpg", 1}, std::pair{"val/0_x.png", 0}));
}

TEST_F(ImageFolder, WithoutLabelsAFileNameInASubFolderIsNoClass) {
  for (const char* name : {"0001_dog.jpg", "cat/1_a.jpg"}) add(name);
  EXPECT_THAT(label_error({}),
              AllOf(HasSubstr("cat/1_a.jpg"), HasSubstr("folder 'cat'"), HasSubstr("--labels")));
  EXPECT_THAT(labelled({"dog", "cat"}),
              ElementsAre(std::pair{"0001_dog.jpg", 1}, std::pair{"cat/1_a.jpg", 1}));
}

TEST_F(ImageFolder, NumberedFoldersAreClassIndices) {
  for (const char* name : {"val/0/5_a.jpg", "val/007/b.jpg", "3_c.jpg"}) add(name);
  const auto classes =
      ElementsAre(std::pair{"3_c.jpg", 3}, std::pair{"val/0/5_a.jpg", 0}, std::pair{"val/007/b.jpg", 7});
  EXPECT_THAT(labelled({}), classes);
  EXPECT_THAT(labelled({"dog", "cat"}, 10), classes);
  EXPECT_THAT(label_error({}, 7), HasSubstr("7 is not below"));
}

TEST_F(ImageFolder, NumberedFoldersThatAreLabelsAreThose) {
  for (const char* name : {"1/a.jpg", "2/b.jpg"}) add(name);
  EXPECT_THAT(labelled({"2", "1"}), ElementsAre(std::pair{"1/a.jpg", 1}, std::pair{"2/b.jpg", 0}));
  EXPECT_THAT(label_error({"2", "3"}), HasSubstr("1/a.jpg"));
}

TEST_F(ImageFolder, ANumberAmongNamesIsNoClassIndex) {
  for (const char* name : {"1/a.jpg", "other/b.jpg"}) add(name);
  EXPECT_THAT(label_error({}), AllOf(HasSubstr("1/a.jpg"), HasSubstr("--labels")));
  EXPECT_THAT(label_error({"dog", "cat"}), HasSubstr("1/a.jpg"));
}

TEST_F(ImageFolder, TheRootsOwnNameSaysNothing) {
  add("dog/x.jpg");
  const std::string message = test::error_of([&] { list_labelled_images(root() / "dog", {"dog"}); });
  EXPECT_THAT(message, HasSubstr("no class"));
}

TEST_F(ImageFolder, TheFirstImageWithoutAClassIsNamed) {
  for (const char* name : {"cat/1.jpg", "bird/1x.jpg", "bird/2x.jpg"}) add(name);
  EXPECT_THAT(label_error({"dog", "cat"}),
              AllOf(HasSubstr("bird/1x.jpg"), HasSubstr("'dog'"), HasSubstr("0007_")));
  EXPECT_THAT(label_error({}), AllOf(HasSubstr("bird/1x.jpg"), HasSubstr("--labels")));
}

TEST_F(ImageFolder, ClassesBeyondTheModelAreErrors) {
  add("0002_x.jpg");
  EXPECT_THAT(label_error({"dog", "cat"}), AllOf(HasSubstr("0002_x.jpg"), HasSubstr("2 is not below")));
  EXPECT_THAT(label_error({}, 2), HasSubstr("2 is not below"));
  EXPECT_THAT(labelled({"dog", "cat"}, 3), ElementsAre(std::pair{"0002_x.jpg", 2}));
}

TEST_F(ImageFolder, AnAmbiguousFolderIsAnError) {
  add("crane/1.jpg");
  EXPECT_THAT(label_error({"n02012849 crane", "n03126707 crane"}), HasSubstr("ambiguous"));
}

}  // namespace
}  // namespace pipit::internal
