// How the loss that removing weights causes is estimated, as the public headers and as sparsity/ say it.
#pragma once

#include "pipit/prune.h"
#include "sparsity/eliminate.h"

namespace pipit::internal::detail {

inline Importance importance_of(tools::Importance importance) {
  switch (importance) {
    case tools::Importance::l1:
      return Importance::l1;
    case tools::Importance::l2:
      return Importance::l2;
    case tools::Importance::activation:
      return Importance::activation;
    case tools::Importance::second_order:
      break;
  }
  return Importance::second_order;
}

}  // namespace pipit::internal::detail
