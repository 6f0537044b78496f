#include "engine/platform/nvidia_wheels.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>

namespace pipit::internal {
namespace {

namespace fs = std::filesystem;

TEST(NvidiaWheels, AreBesideThePackage) {
  const fs::path root = fs::temp_directory_path() / ("pipit-wheels-" + std::to_string(getpid()));
  const fs::path site = root / "lib/python3.12/site-packages";
  for (const char* folder : {"pipit/bin", "nvidia/cudnn/lib", "nvidia/cu13/lib", "nvidia/cudnn/include"})
    fs::create_directories(site / folder);
  std::ofstream(site / "nvidia/file") << "none";
  const std::string cu13 = (site / "nvidia/cu13/lib").string(), cudnn = (site / "nvidia/cudnn/lib").string();
  EXPECT_THAT(folders_of_nvidia_wheels(site / "pipit/_pipit.abi3.so"), testing::ElementsAre(cu13, cudnn));
  EXPECT_THAT(folders_of_nvidia_wheels(site / "pipit/bin/pipit"), testing::ElementsAre(cu13, cudnn));
  fs::create_directories(root / "build/nvidia/cudnn/lib");
  EXPECT_THAT(folders_of_nvidia_wheels(root / "build/pipit"), testing::IsEmpty());
  EXPECT_THAT(folders_of_nvidia_wheels("dist-packages/pipit"), testing::IsEmpty());
  EXPECT_THAT(folders_of_nvidia_wheels({}), testing::IsEmpty());
  fs::remove_all(root);
}

TEST(NvidiaWheels, KnowTheirOwnFile) {
  const fs::path file = own_file();
  EXPECT_TRUE(file.is_absolute()) << file;
  EXPECT_TRUE(fs::exists(file)) << file;
}

}  // namespace
}  // namespace pipit::internal
